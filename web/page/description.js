// A description as it would be in a file: nested names, and values with their units. And a link that has all of it.

const PART = /^[a-z0-9-]+$/;
const NUMBER = /^-?\d+(\.\d+)?(e[+-]?\d+)?$/i;

/** What is at the path `a.b.c`, or undefined. */
export function get(description, path) {
  let here = description;
  for (const part of path.split('.')) {
    if (typeof here !== 'object' || here === null || !Object.hasOwn(here, part)) return undefined;
    here = here[part];
  }
  return here;
}

/** The description with `value` at that path; the one that was given stays as it is. */
export function set(description, path, value) {
  const copy = structuredClone(description);
  let here = copy;
  const parts = path.split('.');
  if (!parts.every((part) => PART.test(part))) return copy;
  for (const part of parts.slice(0, -1)) {
    if (!Object.hasOwn(here, part) || typeof here[part] !== 'object') here[part] = {};
    here = here[part];
  }
  here[parts.at(-1)] = value;
  return copy;
}

/** What a person wrote, as a value: numbers and yes or no are those, all else is text with its unit. */
export function value(text) {
  const plain = text.trim();
  if (NUMBER.test(plain)) return Number(plain);
  return { true: true, false: false }[plain] ?? plain;
}

/** The kind of requests that are made of it. */
export function kind(description) {
  return Object.keys(description.request ?? {})[0];
}

/** Every path with its value. */
function leaves(description, before = '') {
  return Object.entries(description).flatMap(([part, inner]) =>
    typeof inner === 'object' && inner !== null ? leaves(inner, `${before}${part}.`) : [[before + part, inner]]);
}

/** What of `description` is not so in `base`, as pairs for a link. */
export function differences(description, base) {
  return leaves(description)
    .filter(([path, inner]) => get(base, path) !== inner)
    .map(([path, inner]) => [path, String(inner)]);
}

/** `base` with what a link says. */
export function differing(base, pairs) {
  return pairs.reduce((description, [path, text]) => set(description, path, value(text)), base);
}
