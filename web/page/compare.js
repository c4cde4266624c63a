// The four structures side by side: bars, machines, and one sentence.
//
// A view is one model, from which a card has all of its numbers: the bound, or the performance under the load.

import { at, element } from './element.js';
import { architecture } from './architectures.js';
import { machine } from './machine.js';
import { percent, perSecond, rate, time, times } from './quantity.js';

/** So long nothing may change before the sentence is said to those who hear the page. */
const SAID_AFTER_MS = 400;

/** The numbers of `comes` in a view; of the bound there is no response time. */
function shown(comes, view, resources) {
  if (view !== 'closed') return { ...comes.bound, requests: comes.bound_requests, binding: comes.binding };
  const { utilisation } = comes.loaded;
  return { ...comes.loaded, binding: resources[utilisation.indexOf(Math.max(...utilisation))], isOverloaded: comes.is_overloaded };
}

export class Comparison {
  /** Shows what was evaluated; `view` is `bound` or `closed`. */
  show(evaluated, description, view) {
    const all = evaluated.architectures.map((comes) => ({
      name: comes.architecture, refused: comes.refused,
      ...(comes.refused === undefined ? shown(comes, view, evaluated.resources) : {}),
    }));
    const most = Math.max(...all.map((one) => one.throughput ?? 0));
    at('bars').replaceChildren(...all.map((one) => bar(one, view, most)));
    at('cards').replaceChildren(...all.map((one) => card(evaluated, one, description, view, all[0])));
    this.tell(sentence(all, view));
  }

  tell(words) {
    clearTimeout(this.timer);
    const isFirst = at('told').textContent === '';
    this.timer = setTimeout(() => { at('told').textContent = words; }, isFirst ? 0 : SAID_AFTER_MS);
  }
}

function bar({ name, refused, throughput, binding, isOverloaded }, view, most) {
  const { title } = architecture(name);
  if (refused !== undefined) {
    return element('li', { class: `${name} refused` },
      element('span', { class: 'name' }, title), element('span', { class: 'room', 'aria-hidden': 'true' }),
      element('b', {}, 'cannot be'));
  }
  const length = element('span', { class: 'length' });
  length.style.width = `${(100 * throughput) / most}%`;
  return element('li', { class: name },
    element('span', { class: 'name' }, title),
    element('span', { class: 'room', 'aria-hidden': 'true' }, length),
    element('b', {}, rate(throughput)),
    element('span', { class: 'by' }, `${bound(view).toLowerCase()} ${binding}${isOverloaded ? ', overloaded' : ''}`));
}

function card(evaluated, one, description, view, first) {
  const { name, refused, throughput, utilisation, response, requests, isOverloaded } = one;
  const { title, says } = architecture(name);
  const head = [element('h3', { id: `card-${name}` }, title), element('p', { class: 'says' }, says)];
  if (refused !== undefined) {
    return element('article', { class: `card ${name} refused`, 'aria-labelledby': `card-${name}` }, ...head,
      element('p', { class: 'why' }, `This machine cannot be it: ${refused}.`));
  }
  const words = `${title}: ${evaluated.resources
    .map((resource, at) => `${resource} ${percent(utilisation[at])} busy`).join(', ')}. ${bound(view)} ${one.binding}.`;
  const answers = view !== 'closed' ? [] : [
    element('dt', {}, 'Mean response'),
    element('dd', isOverloaded ? { class: 'overloaded' } : {}, isOverloaded ? 'overloaded' : time(response)),
  ];
  return element('article', { class: `card ${name}`, 'aria-labelledby': `card-${name}` }, ...head,
    element('p', { class: 'big' }, rate(throughput),
      one === first ? '' : element('span', { class: 'times' }, ` ${times(throughput / first.throughput)}`)),
    machine(description, name, utilisation, evaluated.units, evaluated.resources.indexOf(one.binding), words),
    element('dl', {},
      element('dt', {}, bound(view)), element('dd', { class: 'binding' }, one.binding), ...answers,
      element('dt', {}, 'Requests'), element('dd', {}, perSecond(requests))));
}

/** What is said before the resource that is marked: under a load it need not limit anything. */
function bound(view) {
  return view === 'closed' ? 'Busiest' : 'Bound by';
}

function sentence(all, view) {
  const how = view === 'closed' ? 'under its load' : 'at most';
  const each = all.map((one) => {
    const { title } = architecture(one.name);
    if (one.refused !== undefined) return `${title} cannot be`;
    const by = view === 'closed' ? 'busiest' : 'bound by';
    return `${title} ${rate(one.throughput)}, ${by} ${one.binding}${one.isOverloaded ? ', overloaded' : ''}`;
  });
  return `Throughput ${how}: ${each.join('; ')}.`;
}
