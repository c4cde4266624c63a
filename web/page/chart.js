// Curves over the positions of a slider, so that the slider below is their axis; and the same as a table.

import { at, element, shape } from './element.js';
import { architecture, order } from './architectures.js';
import { digits, rate, time, unit } from './quantity.js';

const MARGIN = { left: 58, right: 14, top: 14, bottom: 44 };
const HEIGHT = 300;
/** Between words below the axis. */
const WORD = 84;
/** Rows of the table. */
const ROWS = 12;

/** A range of amounts so wide that their axis is logarithmic. */
const WIDE = 20;

/** Draws `curves` (the engine's answer) over `slider`, in the width that there is. */
export function chart(curves, slider, show, value) {
  const width = Math.max(300, at('chart').clientWidth || 700);
  const isTime = show === 'response';
  const amounts = curves.curves.flatMap((curve) => curve.y).filter((amount) => amount > 0);
  const [least, most] = [Math.min(...amounts), Math.max(...amounts)];
  const isLogarithmic = isTime && most > WIDE * least;
  const [name, size] = unit(isLogarithmic ? least : most, isTime);
  const last = slider.notches.length - 1;
  const x = (place) => MARGIN.left + ((width - MARGIN.left - MARGIN.right) * place) / last;
  const axis = isLogarithmic ? logarithmic(least, most, size) : linear(most * 1.05, size);
  const drawn = shape('svg', {
    viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: 'img',
    'aria-label': words(curves, slider, isTime),
  });
  const title = `${isTime ? 'mean response' : 'throughput'} in ${name}${axis.note}`;
  drawn.append(...across(axis, size, width, title), ...along(slider, x, width), here(x(slider.place), value),
    ...curves.curves.map((curve) => line(curve, curves.places, x, axis.y, slider.place)));
  at('chart').replaceChildren(legend(curves), drawn);
}

/** An axis from nothing to `most`: places of amounts, amounts at which to draw a line, and a note for its title. */
function linear(most, size) {
  return {
    y: (amount) => HEIGHT - MARGIN.bottom - ((HEIGHT - MARGIN.top - MARGIN.bottom) * amount) / most,
    ticks: ticks(most / size),
    note: '',
  };
}

/** An axis of equal factors from `least` to `most`. */
function logarithmic(least, most, size) {
  const [low, high] = [Math.log(least / 1.2), Math.log(most * 1.2)];
  const powers = Array.from({ length: 30 }, (_, number) => 10 ** (number - 15));
  const inside = (digits) => powers.flatMap((ten) => digits.map((digit) => digit * ten))
    .filter((amount) => amount * size >= least / 1.2 && amount * size <= most * 1.2);
  return {
    y: (amount) => HEIGHT - MARGIN.bottom - ((HEIGHT - MARGIN.top - MARGIN.bottom) * (Math.log(amount) - low)) / (high - low),
    ticks: [[1], [1, 3], [1, 2, 5]].map(inside).find((found) => found.length >= 4) ?? inside([1, 2, 5]),
    note: ', logarithmic',
  };
}

function across(axis, size, width, title) {
  return axis.ticks.flatMap((amount) => [
    shape('path', { class: 'grid', d: `M${MARGIN.left} ${axis.y(amount * size)}H${width - MARGIN.right}` }),
    shape('text', { x: MARGIN.left - 8, y: axis.y(amount * size) + 4, 'text-anchor': 'end' }, digits(amount)),
  ]).concat(shape('text', {
    class: 'title', transform: `translate(13 ${(HEIGHT - MARGIN.bottom) / 2 + 6}) rotate(-90)`, 'text-anchor': 'middle',
  }, title));
}

/** About five round amounts from nothing to `most`. */
function ticks(most) {
  const rough = most / 5;
  const ten = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((digit) => digit * ten).find((one) => one >= rough);
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, number) => number * step);
}

/** What the title of the axis says of its steps. */
const STEPS = { linear: '', logarithmic: ', logarithmic', uneven: ', in steps that grow' };

function along(slider, x, width) {
  const last = slider.notches.length - 1;
  const all = marked(slider.notches, Math.ceil((last * WORD) / (width - MARGIN.left - MARGIN.right)));
  // The words of the last position end at it, so they need more room before them.
  const places = all.filter((place) => place === last || !all.includes(last) || x(last) - x(place) >= 1.5 * WORD);
  return places.flatMap((place, number) => [
    shape('path', { class: 'tick', d: `M${x(place)} ${HEIGHT - MARGIN.bottom}v5` }),
    shape('text', {
      x: x(place), y: HEIGHT - MARGIN.bottom + 19,
      'text-anchor': place === last ? 'end' : place === 0 && number === 0 ? 'start' : 'middle',
    }, slider.notches[place]),
  ]).concat(shape('text', {
    class: 'title', x: (MARGIN.left + width - MARGIN.right) / 2, y: HEIGHT - 6, 'text-anchor': 'middle',
  }, `${slider.group}: ${slider.label.toLowerCase()}${STEPS[slider.scale]}`));
}

/** Positions that are written below the axis, so far apart at least: round ones. */
function marked(notches, apart) {
  const numbers = notches.map(parseFloat);
  const last = notches.length - 1;
  const isEven = Math.abs(numbers[1] - numbers[0] - (numbers[last] - numbers[last - 1])) < 1e-9;
  if (isEven) {
    const stride = [1, 2, 4, 5, 10, 20, 25, 40, 50, 100].find((one) => one >= apart && last % one === 0) ?? last;
    return Array.from({ length: last / stride + 1 }, (_, number) => number * stride);
  }
  const places = [];
  for (const round of [/^[01]0* |^10*$/, /^[25]0* |^[25]0*$/]) {
    for (const place of notches.keys()) {
      if (round.test(notches[place]) && places.every((at) => Math.abs(at - place) >= apart)) places.push(place);
    }
  }
  return places;
}

function here(x, value) {
  return shape('g', { class: 'here' },
    shape('path', { d: `M${x} ${MARGIN.top}V${HEIGHT - MARGIN.bottom}` }),
    shape('text', { x, y: MARGIN.top - 3, 'text-anchor': 'middle' }, value));
}

/** A curve; where an overloaded server has no response time it has a gap. */
function line(curve, places, x, y, place) {
  let pen = 'M';
  const path = places.map((at, index) => {
    if (curve.y[index] === null || curve.y[index] === undefined) {
      pen = 'M';
      return '';
    }
    const step = `${pen}${x(at).toFixed(1)} ${y(curve.y[index]).toFixed(1)}`;
    pen = 'L';
    return step;
  }).join('');
  const here = between(curve.y, places, place);
  const mark = here === undefined ? [] : [shape('circle', { cx: x(place), cy: y(here), r: 6 - order(curve.architecture) })];
  return shape('g', { class: curve.architecture }, shape('path', { class: 'curve', d: path }), ...mark);
}

/** The amount of a curve at a place that may be between two points; undefined where it has a gap. */
function between(amounts, places, place) {
  if (place < places[0]) return undefined;
  const above = places.findIndex((at) => at >= place);
  if (above <= 0) return amounts[above === 0 ? 0 : amounts.length - 1] ?? undefined;
  if (amounts[above] === null) return undefined;
  const share = (place - places[above - 1]) / (places[above] - places[above - 1]);
  return amounts[above - 1] + share * (amounts[above] - amounts[above - 1]);
}

function legend(curves) {
  return element('ul', { class: 'legend', 'aria-hidden': 'true' }, ...curves.curves.map(({ architecture: name }) =>
    element('li', { class: name },
      shape('svg', { width: 30, height: 10 }, shape('path', { class: 'curve', d: 'M2 5H28' })), architecture(name).title)));
}

/** What a drawing says to those who do not see it. */
function words(curves, slider, isTime) {
  const amount = amounts(isTime);
  const each = curves.curves.map((curve) =>
    `${architecture(curve.architecture).title} from ${amount(curve.y[0])} to ${amount(curve.y.at(-1))}`);
  const [first, last] = [slider.notches[0], slider.notches.at(-1)];
  return `${isTime ? 'Response time' : 'Throughput'} over ${slider.group}, ${slider.label}, from ${first} to ${last}: ` +
    `${each.join('; ')}. A table follows.`;
}

/** How an amount is written; an overloaded server has no response time. */
function amounts(isTime) {
  return (amount) => (amount === null || amount === undefined ? 'overloaded' : (isTime ? time : rate)(amount));
}

/** The same as a table, of at most twelve rows. */
export function table(curves, slider, isTime) {
  const stride = Math.max(1, Math.ceil((curves.places.length - 1) / (ROWS - 1)));
  const rows = curves.places.map((_, index) => index)
    .filter((index) => index % stride === 0 || index === curves.places.length - 1);
  const amount = amounts(isTime);
  const head = element('tr', {}, element('th', { scope: 'col' }, slider.label),
    ...curves.curves.map((curve) => element('th', { scope: 'col' }, architecture(curve.architecture).title)));
  const body = rows.map((index) => element('tr', {},
    element('th', { scope: 'row' }, slider.notches[curves.places[index]]),
    ...curves.curves.map((curve) => element('td', {}, amount(curve.y[index]),
      element('small', {}, curve.binding[index])))));
  return element('table', {},
    element('caption', {}, `${isTime ? 'Response time' : 'Throughput, and what binds it,'} over ${slider.group}: ${slider.label}`),
    element('thead', {}, head), element('tbody', {}, ...body));
}
