// The page: one state (a description, and what is shown of it), drawn anew after each change.
//
// The engine computes, the other modules draw; here is what leads to what.

import { at, element } from './element.js';
import { Engine, Refused } from './engine.js';
import { kind, set } from './description.js';
import { Address, base, beginning, read, written } from './link.js';
import { Controls, Row, described } from './controls.js';
import { Comparison } from './compare.js';
import { chart, table } from './chart.js';
import { Simulation } from './simulation.js';
import { Programs } from './program.js';

class Page {
  constructor(engine) {
    this.engine = engine;
    this.presets = engine.ask({ ask: 'presets' });
    this.controls = new Controls((key, value) => this.move(key, value));
    this.comparison = new Comparison();
    this.address = new Address();
    const now = () => ({ description: this.state.description, evaluated: this.evaluated });
    this.simulation = new Simulation(engine.module, now);
    this.programs = new Programs(engine, now);
    this.offer();
    this.listen();
    this.restore();
  }

  /** Fills the lists of what there is to begin with. */
  offer() {
    const groups = [...new Set(this.presets.servers.map((server) => server.group))];
    const options = groups.map((group) => element('optgroup', { label: group },
      ...this.presets.servers.filter((server) => server.group === group)
        .map((server) => element('option', { value: server.name }, capital(server.title.split(':')[0])))));
    at('server').replaceChildren(...options, element('option', { value: 'own', hidden: true }, 'Your own'));
    at('requests').replaceChildren(...this.presets.requests.map(({ title, request }) =>
      element('option', { value: Object.keys(request)[0] }, title)));
  }

  listen() {
    at('server').addEventListener('change', () => this.begin());
    at('requests').addEventListener('change', () => this.begin());
    at('view').addEventListener('change', (event) => this.change({ view: event.target.value }));
    at('show').addEventListener('change', (event) => this.change({ show: event.target.value }));
    at('example').addEventListener('change', (event) => this.change({ program: event.target.value }));
    for (const id of ['served', 'seed', 'until']) at(id).addEventListener('change', () => this.change({ [id]: at(id).value }));
    at('over').addEventListener('change', (event) => this.change({ over: event.target.value }));
    at('table').addEventListener('toggle', () => this.tabulate());
    at('share').addEventListener('click', (event) => copy(event.target, this.address.now()));
    at('copy').addEventListener('click', (event) => copy(event.target, at('text').value));
    at('use').addEventListener('click', () => this.use());
    at('text').addEventListener('input', () => { this.isEdited = true; });
    for (const form of document.forms) form.addEventListener('submit', (event) => event.preventDefault());
    addEventListener('hashchange', () => this.restore());
    let width = 0;
    new ResizeObserver(([{ contentRect }]) => {
      if (contentRect.width !== width && this.state) this.draw();
      width = contentRect.width;
    }).observe(at('chart'));
  }

  /** Takes what the address says; where that cannot be, says so and begins anew. */
  restore() {
    const text = location.hash.slice(1);
    // A link to a part of the page is none to a state.
    if (this.state && !text.includes('=')) return;
    const why = this.change(read(text, this.presets));
    if (why !== '') {
      this.change(beginning(this.presets));
      complain('trouble', `The link cannot be shown: ${why}`);
    }
  }

  /** From the lists at the top: that machine, or these requests to the machine that there is. */
  begin() {
    complain('trouble', this.taken());
  }

  taken() {
    const [server, requests] = [at('server').value, at('requests').value];
    const known = base(this.presets, server, requests);
    if (server !== this.state.server && known) {
      return this.change({ server, description: known });
    }
    const { request } = this.presets.requests.find((one) => Object.hasOwn(one.request, requests));
    return this.change({ description: { ...this.state.description, request } });
  }

  /** A slider has moved; answers why it cannot be there, or nothing. */
  move(key, value) {
    let description = set(this.state.description, key, value);
    // Bursts are of requests that arrive on their own, and thinking is of threads that ask again.
    if (key === 'load.arrivals') {
      const isOpen = parseFloat(value) > 0;
      description = isOpen ? set(description, 'load.think', '0 s') : set(description, 'load.burst', 1);
    }
    return this.change({ description });
  }

  /** Takes the text of the file. */
  use() {
    let told = '';
    const why = attempt(() => {
      const { description, implied } = this.engine.ask({ ask: 'read', text: at('text').value });
      const wasEdited = this.isEdited;
      this.isEdited = false;
      const refused = this.change({ server: 'own', description });
      if (refused !== '') {
        this.isEdited = wasEdited;
        throw new Refused(refused);
      }
      told = `Taken. ${implied}`.trim();
    });
    at('file-told').textContent = told;
    complain('file-trouble', why);
  }

  /** Goes over to another state and draws it; or stays and answers why. */
  change(changes) {
    const state = { ...this.state, ...changes };
    return attempt(() => {
      this.evaluated = this.engine.ask({ ask: 'evaluate', description: state.description });
      this.state = state;
      this.draw();
      this.address.keep(written(state, this.presets));
      for (const place of ['trouble', 'file-trouble']) complain(place, '');
      at('file-told').textContent = '';
    });
  }

  draw() {
    const { description, view, show, server, served, seed, program, until } = this.state;
    const { sliders } = this.evaluated;
    at('server').value = server;
    at('requests').value = kind(description);
    for (const choice of document.getElementsByName('view')) choice.checked = choice.value === view;
    at('show').value = show;
    at('served').value = served;
    at('seed').value = seed;
    at('until').value = until;
    this.simulation.outdate(description);
    this.programs.offer(program);
    this.programs.outdate(description);
    this.controls.show(sliders, description);
    this.comparison.show(this.evaluated, description, view);
    this.over = sliders.find((slider) => slider.key === this.state.over) ?? sliders[0];
    this.curves = this.engine.ask({ ask: 'curve', description, key: this.over.key, show });
    chart(this.curves, this.over, show, described(description, this.over));
    this.choose(sliders);
    this.tabulate();
    if (!this.isEdited) at('text').value = this.engine.ask({ ask: 'write', description });
  }

  /** What the curves can go over, and the slider that is their axis. */
  choose(sliders) {
    const keys = sliders.map((slider) => slider.key).join();
    if (keys !== this.keys) {
      at('over').replaceChildren(...sliders.map((slider) =>
        element('option', { value: slider.key }, `${slider.group}: ${slider.label.toLowerCase()}`)));
    }
    this.keys = keys;
    at('over').value = this.over.key;
    if (this.along?.slider.key !== this.over.key) {
      this.along = new Row(this.over, (key, value) => this.move(key, value), 'along');
      at('along').replaceChildren(this.along.element);
    }
    this.along.show(this.over, described(this.state.description, this.over));
  }

  tabulate() {
    if (at('table').open) {
      at('table').lastElementChild.replaceChildren(table(this.curves, this.over, this.state.show === 'response'));
    }
  }
}

/** Does it; answers nothing, or why the engine refused. */
function attempt(what) {
  try {
    what();
    return '';
  } catch (refused) {
    if (!(refused instanceof Refused)) throw refused;
    return refused.message;
  }
}

/** Shows words of trouble at a place, beside what caused it; no words hide it. */
function complain(place, words) {
  at(place).textContent = words;
  at(place).hidden = words === '';
}

function capital(words) {
  return words[0].toUpperCase() + words.slice(1);
}

/** Copies a text and says so on the button for a while. */
async function copy(button, text) {
  const label = (button.dataset.label ??= button.textContent);
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = 'Copied';
  } catch {
    // Without that right the text can be taken from where it is.
    button.textContent = button.id === 'share' ? 'It is in the address' : 'Select it and copy';
  }
  setTimeout(() => { button.textContent = label; }, 2000);
}

try {
  new Page(await Engine.open(at('engine').textContent));
  document.documentElement.dataset.ready = '';
} catch (fault) {
  at('trouble').textContent = `This page cannot compute here: ${fault.message}. It needs a browser of 2023 or later.`;
  at('trouble').hidden = false;
  throw fault;
}
