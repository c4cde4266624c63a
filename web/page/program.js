// Programs inside the machine: each structure executes the same one, beside the page; results side by side, and for one
// of them the timeline, the parts of the machine, the functions and the output.

import { at, element } from './element.js';
import { architecture } from './architectures.js';
import { Lanes } from './lanes.js';
import { unpacked } from './packed.js';
import { count, percent, rate, time } from './quantity.js';

/** The program that somebody chooses from a disk. */
const OWN_PROGRAM = 'own';
/** Bytes of a program and its files that are taken. */
const BYTES_MAX = 512 * 2 ** 20;
/** Characters of output that are shown, the last ones. */
const OUTPUT_MAX = 2 ** 18;
/** Where each number of the clients is typed. */
const FIELDS = { clients: 'clients', paths: 'paths', requests: 'requests-measured', port: 'port' };
const SIZES = [['MiB', 2 ** 20], ['KiB', 2 ** 10], ['B', 1]];

/** `now()` answers the description and what it was evaluated to, as they are when an execution begins. */
export class Programs {
  constructor(engine, now) {
    this.module = engine.module;
    this.examples = engine.ask({ ask: 'examples' });
    this.now = now;
    this.runs = [];
    this.lanes = new Lanes((number, window) => this.worker?.postMessage({ lanes: { number, ...window } }));
    this.missing = at('programs').dataset.missing;
    at('missing').hidden = this.missing === '';
    at('missing').textContent = `This page has no programs of its own: when it was made, ${this.missing}. It can execute yours.`;
    const offered = this.missing === '' ? this.examples : [];
    at('example').replaceChildren(...offered.map(({ name, title }) => element('option', { value: name }, title)),
      element('option', { value: OWN_PROGRAM }, 'Your own, from a file'));
    at('execute').addEventListener('click', () => (this.isRunning ? this.stop() : this.start()));
    at('spans').addEventListener('click', () => this.worker?.postMessage({ spans: { number: this.shown } }));
    at('structures').addEventListener('change', (event) => this.choose(Number(event.target.value)));
    at('clients').addEventListener('input', () => this.enable());
  }

  /** Shows a program with its arguments, files and clients, unless it is shown. */
  offer(name) {
    const isOffered = this.missing === '' && this.examples.some((one) => one.name === name);
    const chosen = isOffered ? name : OWN_PROGRAM;
    if (chosen === this.name) return;
    this.name = chosen;
    at('example').value = chosen;
    const isOwn = chosen === OWN_PROGRAM;
    const example = this.examples.find((one) => one.name === chosen) ?? { arguments: '', made: [], clients: null };
    this.made = example.made;
    at('arguments').value = example.arguments;
    at('made').textContent = example.made.map(({ folder, count: many, bytes }) => `${folder}: ${many} of ${size(bytes)}`).join(', ');
    for (const id of ['own-field', 'files-field']) at(id).hidden = !isOwn;
    at('made-field').hidden = isOwn || example.made.length === 0;
    const clients = example.clients ?? { clients: 0, paths: '/', requests: 1000, port: 8080 };
    for (const [name, value] of Object.entries(clients)) at(FIELDS[name]).value = value;
    at('world').open = isOwn || at('world').open;
    this.enable();
  }

  /** Without clients there is nothing to say of what they do. */
  enable() {
    const isServer = at('clients').value !== '0';
    for (const name of ['paths', 'requests', 'port']) at(FIELDS[name]).disabled = !isServer;
  }

  async start() {
    const { description, evaluated } = this.now();
    const computed = evaluated.architectures.filter((comes) => comes.refused === undefined);
    this.begin(description, computed.map(({ architecture: name }) => ({ name, output: '' })));
    try {
      const { bytes, ...program } = await this.program();
      if (this.isStopped) return this.end('');
      this.requests = program.clients === null ? 0 : program.clients.requests * 1.1;
      const seconds = Number(at('until').value);
      const questions = this.runs.map(({ name }) => ({ ask: 'begin', description, architecture: name, ...program, seconds, seed: 1 }));
      this.worker = worker();
      this.worker.onmessage = ({ data }) => this.hear(data);
      this.worker.onerror = (event) => this.end(`The program cannot be executed here: ${event.message}`);
      this.worker.postMessage({ module: this.module, program: { bytes, questions } }, [bytes]);
    } catch (fault) {
      this.end(fault.message);
    }
  }

  /** Forgets what was executed before. */
  begin(description, runs) {
    this.worker?.terminate();
    this.worker = undefined;
    [this.description, this.runs, this.requests, this.shown] = [description, runs, 0, 0];
    [this.isRunning, this.isStopped] = [true, false];
    at('execute').textContent = 'Stop';
    at('executing').hidden = false;
    at('execute-told').textContent = 'Executing.';
    troubled('');
    for (const id of ['executed', 'structures', 'lanes', 'parts', 'functions', 'output']) at(id).replaceChildren();
    for (const id of ['looks', 'output-of']) at(id).hidden = true;
    at('executed').classList.remove('old');
    this.progress(0, { seconds: 0, instructions: 0, responses: 0 });
  }

  /** The program with its files, and what the engine is to know of it. */
  async program() {
    const clients = this.clients();
    const world = { arguments: at('arguments').value, made: this.made, clients };
    if (this.name !== OWN_PROGRAM) {
      const bytes = await unpacked(at('programs').textContent);
      return { bytes, program: bytes.byteLength, name: this.name, files: [], ...world };
    }
    const [own] = at('own').files;
    if (!own) throw new Error('Choose the file of a program: for RISC-V Linux (RV64GC), statically linked.');
    const all = [own, ...at('files').files];
    if (all.reduce((sum, file) => sum + file.size, 0) > BYTES_MAX) {
      throw new Error('A page executes programs that have at most 512 MiB with their files: use bywash plan execute.');
    }
    const files = all.slice(1).map((file) => ({ path: `/${file.name}`, bytes: file.size }));
    const bytes = await new Blob(all).arrayBuffer();
    return { bytes, program: own.size, name: own.name, files, ...world };
  }

  clients() {
    const wrong = ['clients', 'requests', 'port'].map((name) => at(FIELDS[name])).find((field) => !field.disabled && !(field.value !== '' && field.checkValidity()));
    if (wrong) {
      at('world').open = true;
      throw new Error(`${wrong.labels[0].firstChild.textContent.trim()}: a whole number from ${wrong.min} to ${wrong.max}.`);
    }
    const clients = at('clients').valueAsNumber;
    if (clients === 0) return null;
    return { clients, paths: at('paths').value, requests: at(FIELDS.requests).valueAsNumber, port: at('port').valueAsNumber };
  }

  /** Asks it to stop: what was executed so far comes as a result that says so. */
  stop() {
    this.isStopped = true;
    this.worker?.postMessage({ stop: true });
  }

  hear({ number, told, outcome, refused, lanes, spans, ended }) {
    if (told) this.progress(number, told);
    if (outcome) {
      this.runs[number].outcome = outcome;
      this.compare();
    }
    if (refused !== undefined) this.end(`${architecture(this.runs[number].name).title}: ${refused}`);
    if (lanes) this.lanes.draw(lanes);
    if (spans !== undefined) save(spans, `${this.name === OWN_PROGRAM ? 'program' : this.name}-${this.runs[number].name}.json`);
    if (ended && this.isRunning) this.end('');
  }

  progress(number, { seconds, instructions, responses, output }) {
    const run = this.runs[number];
    if (output) {
      run.output = (run.output + output).slice(-OUTPUT_MAX);
      this.write(run.output);
    }
    if (this.requests > 0) at('executed-share').value = Math.min(1, responses / this.requests);
    else at('executed-share').removeAttribute('value');
    const served = responses > 0 ? `, ${count(responses)} responses` : '';
    at('executed-so-far').textContent = `${architecture(run.name).title}: ${time(seconds)}, ${count(instructions)} instructions${served}`;
  }

  write(text) {
    at('output-of').hidden = text === '';
    at('output').textContent = text;
  }

  end(why) {
    this.isRunning = false;
    at('execute').textContent = 'Execute';
    at('executing').hidden = true;
    const left = this.runs.filter((run) => run.outcome === undefined).map((run) => architecture(run.name).title);
    const notRun = left.length > 0 && why === '' ? ` Not executed: ${left.join(', ')}.` : '';
    at('execute-told').textContent = why === '' ? `${this.isStopped ? 'Stopped.' : 'Executed.'}${notRun}` : '';
    troubled(why);
  }

  /** The description is another now: what was executed is not of it. */
  outdate(description) {
    this.lanes.fit();
    const isOld = this.runs.some((run) => run.outcome) && description !== this.description;
    at('executed').classList.toggle('old', isOld);
    if (isOld && !this.isRunning) at('execute-told').textContent = 'These are of the numbers before: execute again.';
  }

  /** The results side by side, and the choice of the one that is looked at. */
  compare() {
    const done = this.runs.filter((run) => run.outcome);
    at('executed').replaceChildren(comparison(done));
    at('structures').replaceChildren(element('legend', { class: 'hidden' }, 'Structure that is looked at'), ...this.runs.flatMap(({ name, outcome }, number) => (outcome
      ? [element('label', { class: name }, element('input', { type: 'radio', name: 'structure', value: number, checked: number === this.shown }), ` ${architecture(name).title}`)]
      : [])));
    if (done.length === 1) this.choose(this.runs.indexOf(done[0]));
  }

  /** Looks at the result of one structure. */
  choose(number) {
    this.shown = number;
    const { outcome, output, name } = this.runs[number];
    at('looks').hidden = false;
    this.lanes.look(number, outcome, architecture(name));
    at('parts').replaceChildren(parts(outcome));
    at('functions').replaceChildren(functions(outcome));
    this.write(output);
  }
}

/** Where trouble with a program is told. */
function troubled(words) {
  at('execute-trouble').textContent = words;
  at('execute-trouble').hidden = words === '';
}

function worker() {
  const script = URL.createObjectURL(new Blob([at('worker').textContent], { type: 'text/javascript' }));
  const made = new Worker(script);
  URL.revokeObjectURL(script);
  return made;
}

/** Lets the browser save a text as a file. */
function save(text, name) {
  const link = element('a', { href: URL.createObjectURL(new Blob([text], { type: 'application/json' })), download: name });
  link.click();
  // The browser has begun to read it by then.
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

function size(bytes) {
  const [name, one] = SIZES.find(([, least]) => bytes >= least) ?? SIZES.at(-1);
  return `${bytes / one} ${name}`;
}

/** What worked the greatest share of the time; a processor that waits for memory works. */
function busiest({ shares, parts: all }) {
  const processors = { name: 'processors', working: 1 - shares.idle };
  return all.reduce((most, part) => (part.working > most.working ? part : most), processors);
}

/** Rows of the comparison: a name, a note, and the value of an outcome; without a value it is left out. */
const SERVER_ROWS = [
  ['Responses', 'a second', ({ clients }) => count(Math.round(clients.responses_per_second))],
  ['Throughput', 'of their bodies', ({ clients }) => rate(clients.bytes_per_second)],
  ['Response time', 'mean', ({ clients }) => time(clients.mean)],
  ['', '99 % within', ({ clients }) => time(clients.p99)],
  ['A request takes', 'instructions of the program', (outcome) => each(outcome, outcome.instructions)],
  ['', 'cycles of the system', (outcome) => each(outcome, sum(outcome, 'system_cycles'))],
];
const RESULT_ROWS = [
  ['Works most', '', (outcome) => {
    const most = busiest(outcome);
    return `${most.name} ${percent(most.working)}`;
  }],
  ['Program', 'computes', ({ shares }) => percent(shares.program)],
  ['', 'stalls on caches and memory', ({ shares }) => percent(shares.program_stalled)],
  ['System', 'computes', ({ shares }) => percent(shares.system)],
  ['', 'stalls on memory', ({ shares }) => percent(shares.system_stalled)],
  ['Processors', 'idle', ({ shares }) => percent(shares.idle)],
  ['Memory bus', 'busy', (outcome) => percent(outcome.parts.find((part) => part.name === 'memory bus')?.working ?? 0)],
  ['Instructions', 'of the program', ({ instructions }) => count(instructions)],
  ['System calls', '', (outcome) => count(sum(outcome, 'calls'))],
  ['Requests', 'to disks and interfaces', (outcome) => count(sum(outcome, 'requests'))],
  ['Interrupts', 'or completions found', (outcome) => count(sum(outcome, 'interrupts'))],
  ['Copied', 'bytes, by the system', (outcome) => count(sum(outcome, 'copied'))],
  ['Misses', 'of first-level caches', ({ first_misses: misses }) => count(misses)],
  ['', 'of second-level caches', ({ second_misses: misses }) => count(misses)],
];

function sum(outcome, name) {
  return outcome.processors.reduce((all, one) => all + one[name], 0);
}

/** A number for each of the responses. */
function each({ clients }, number) {
  return clients.responses === 0 ? '' : count(Math.round(number / clients.responses));
}

function comparison(runs) {
  const outcomes = runs.map((run) => run.outcome);
  const served = outcomes.every((outcome) => outcome.clients) ? SERVER_ROWS : [];
  const head = ['', ...runs.map(({ name }) => architecture(name).title)];
  const first = element('tr', {}, element('th', { scope: 'row' }, 'Simulated time'), ...runs.map(({ name, outcome }) =>
    element('td', { class: name }, time(outcome.seconds), ...notes(outcome))));
  const body = [...served, ...RESULT_ROWS].map(([name, note, value]) => element('tr', {},
    element('th', { scope: 'row' }, name, name === '' ? element('span', { class: 'hidden' }, '') : '', element('small', {}, note)),
    ...outcomes.map((outcome) => element('td', {}, together(value(outcome))))));
  return element('table', {},
    element('caption', {}, outcomes[0].clients ? 'The same program with each structure, while its clients were measured' : 'The same program with each structure'),
    element('thead', {}, element('tr', {}, ...head.map((words, number) => element('th', { scope: 'col', class: runs[number - 1]?.name }, words)))),
    element('tbody', {}, first, ...body));
}

/** Keeps each number and its unit in one line. */
function together(words) {
  return words.replaceAll(/(?<=\d) /g, '\u00a0');
}

/** What is to be known of a result: that it is partial, or that the program complained. */
function notes({ status, reason, clients }) {
  if (reason !== '') return [element('small', { class: 'partial' }, reason)];
  return clients ? [] : [element('small', { class: status === 0 ? undefined : 'partial' }, `exit status ${status}`)];
}

function parts({ parts: all }) {
  const rows = all.map((part) => element('tr', {}, element('th', { scope: 'row' }, part.name),
    ...[count(part.count), percent(part.taken), percent(part.working), count(part.served)].map((words) => element('td', {}, words))));
  return tabular('Parts of the machine that did anything', ['', 'How many', 'Taken', 'Working', 'Served'], rows);
}

function functions({ functions: all }) {
  const instructions = all.reduce((most, one) => most + one.instructions, 0);
  const rows = all.map((one) => element('tr', {}, element('th', { scope: 'row' }, element('code', {}, one.name)),
    element('td', {}, instructions > 0 ? `${((100 * one.instructions) / instructions).toFixed(1)} %` : ''), element('td', {}, time(one.stalled))));
  return tabular('Functions of the program, those that took the most time first', ['', 'Instructions', 'Stalled on memory'], rows);
}

function tabular(caption, head, rows) {
  return element('table', {}, element('caption', {}, caption),
    element('thead', {}, element('tr', {}, ...head.map((words) => element('th', { scope: 'col' }, words)))), element('tbody', {}, ...rows));
}
