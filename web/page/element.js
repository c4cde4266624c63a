// Elements in one line.

const SVG = 'http://www.w3.org/2000/svg';

/** An HTML element with attributes and children; attributes that are undefined or false are left out. */
export function element(name, attributes, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** An element of a drawing. */
export function shape(name, attributes, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

/** The element of the page that has this id. */
export function at(id) {
  return document.getElementById(id);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value !== undefined && value !== false) made.setAttribute(name, value === true ? '' : value);
  }
  made.append(...children);
  return made;
}
