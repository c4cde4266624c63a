// The four structures side by side: bars, machines, and one sentence.

import { at, element } from './element.js';
import { ARCHITECTURES } from './architectures.js';
import { machine } from './machine.js';
import { percent, rate, time, times } from './quantity.js';

/** So long nothing may change before the sentence is said to those who hear the page. */
const SAID_AFTER_MS = 400;

/** What is shown of `comes`: the bound, or what the threads come to. */
function shown(comes, view) {
  return view === 'closed' ? comes.closed : comes.bound;
}

export class Comparison {
  /** Shows what was evaluated; `view` is `bound` or `closed`. */
  show(evaluated, description, view) {
    const all = evaluated.architectures;
    const most = Math.max(...all.map((comes) => shown(comes, view).throughput));
    const now = shown(all[0], view).throughput;
    at('bars').replaceChildren(...all.map((comes, number) => bar(comes, number, view, most)));
    at('cards').replaceChildren(
      ...all.map((comes, number) => card(evaluated, comes, number, description, view, now)));
    this.tell(sentence(all, view));
  }

  tell(words) {
    clearTimeout(this.timer);
    const isFirst = at('told').textContent === '';
    this.timer = setTimeout(() => { at('told').textContent = words; }, isFirst ? 0 : SAID_AFTER_MS);
  }
}

function bar(comes, number, view, most) {
  const { name, title } = ARCHITECTURES[number];
  const { throughput } = shown(comes, view);
  const length = element('span', { class: 'length' });
  length.style.width = `${(100 * throughput) / most}%`;
  return element('li', { class: name },
    element('span', { class: 'name' }, title),
    element('span', { class: 'room', 'aria-hidden': 'true' }, length),
    element('b', {}, rate(throughput)),
    element('span', { class: 'by' }, comes.binding));
}

function card(evaluated, comes, number, description, view, now) {
  const { name, title, says } = ARCHITECTURES[number];
  const { throughput, utilisation } = shown(comes, view);
  const binding = evaluated.resources.indexOf(comes.binding);
  const words = `${title}: ${evaluated.resources
    .map((resource, at) => `${resource} ${percent(utilisation[at])} busy`).join(', ')}. Bound by ${comes.binding}.`;
  return element('article', { class: `card ${name}`, 'aria-labelledby': `card-${name}` },
    element('h3', { id: `card-${name}` }, title),
    element('p', { class: 'says' }, says),
    element('p', { class: 'big' }, rate(throughput),
      number === 0 ? '' : element('span', { class: 'times' }, ` ${times(throughput / now)}`)),
    machine(description, name, utilisation, evaluated.units, binding, words),
    element('dl', {},
      element('dt', {}, 'Bound by'), element('dd', { class: 'binding' }, comes.binding),
      element('dt', {}, 'Answers in'), element('dd', {}, time(comes.closed.response)),
      element('dt', {}, 'Requests'), element('dd', {}, `${count(comes.closed.requests)}/s`)));
}

function sentence(all, view) {
  const how = view === 'closed' ? 'with its threads' : 'at most';
  const each = all.map((comes, number) =>
    `${ARCHITECTURES[number].title} ${rate(shown(comes, view).throughput)}, bound by ${comes.binding}`);
  return `Throughput ${how}: ${each.join('; ')}.`;
}

function count(number) {
  return number >= 1000 ? Math.round(number).toLocaleString('en') : number.toPrecision(3);
}
