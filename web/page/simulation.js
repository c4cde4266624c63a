// Simulations of the four structures, one after the other, beside the page; their results against the model's.

import { at, element } from './element.js';
import { architecture } from './architectures.js';
import { percent, perSecond, rate, span, time } from './quantity.js';

/** `now()` answers the description and what it was evaluated to, as they are when a simulation begins. */
export class Simulation {
  constructor(module, now) {
    this.module = module;
    this.now = now;
    at('run').addEventListener('click', () => (this.worker ? this.stop() : this.start()));
  }

  start() {
    const { description, evaluated } = this.now();
    const [requests, seed] = [Number(at('served').value), at('seed').valueAsNumber];
    if (!at('seed').checkValidity() || Number.isNaN(seed)) {
      at('simulated-told').textContent = 'A seed is a whole number from 0 on.';
      return;
    }
    this.description = description;
    this.computed = evaluated.architectures.filter((comes) => comes.refused === undefined);
    this.reports = [];
    this.isStopped = false;
    this.canAsk = false;
    this.flag = address('.', 'text/plain');
    const script = address(at('worker').textContent, 'text/javascript');
    this.worker = new Worker(script);
    URL.revokeObjectURL(script);
    this.worker.onmessage = ({ data }) => this.hear(data);
    this.worker.onerror = (event) => this.end(`The simulation cannot run here: ${event.message}`);
    this.worker.postMessage({
      module: this.module,
      flag: this.flag,
      questions: this.computed.map((comes) => ({ ask: 'simulate', description, architecture: comes.architecture, requests, seed })),
    });
    at('run').textContent = 'Stop';
    at('going').hidden = false;
    at('simulated-told').textContent = 'Simulating.';
    this.progress(0, 0);
    this.show();
  }

  /** Asks it to stop: what there is so far comes as a report that says so. One that cannot be asked is ended. */
  stop() {
    this.isStopped = true;
    URL.revokeObjectURL(this.flag);
    if (!this.canAsk) this.end(this.stopped());
  }

  /** What is left out of a simulation that was stopped. */
  stopped() {
    const missing = this.computed.slice(this.reports.length).map((comes) => architecture(comes.architecture).title);
    const left = missing.length > 0 ? `Not simulated: ${missing.join(', ')}.` : '';
    const isPartial = this.reports.some((report) => !report.is_whole);
    return `Stopped. ${isPartial ? 'The last result is partial. ' : ''}${left}`.trim();
  }

  hear({ canLook, number, share, report, refused, ended }) {
    if (canLook !== undefined) this.canAsk = canLook;
    if (share !== undefined) this.progress(number, share);
    if (report) {
      this.reports.push(report);
      this.progress(number + 1, 0);
      this.show();
    }
    if (refused !== undefined) this.end(`It cannot be simulated: ${refused}`);
    if (ended && this.worker) this.end(this.isStopped ? this.stopped() : 'Simulated.');
  }

  progress(number, share) {
    at('progress').value = (number + share) / this.computed.length;
    at('done').textContent = this.computed[number] ? architecture(this.computed[number].architecture).title : '';
  }

  end(words) {
    this.worker.terminate();
    this.worker = undefined;
    URL.revokeObjectURL(this.flag);
    at('run').textContent = 'Simulate';
    at('going').hidden = true;
    at('simulated-told').textContent = words;
  }

  /** The description is another now: what was simulated is not of it. */
  outdate(description) {
    const isOld = this.reports?.length > 0 && description !== this.description;
    at('simulated').classList.toggle('old', isOld);
    if (isOld && !this.worker) at('simulated-told').textContent = 'These are of the numbers before: simulate again.';
  }

  show() {
    if (this.reports.length === 0) return at('simulated').replaceChildren();
    at('simulated').classList.remove('old');
    const head = ['', 'Throughput', 'Model', 'Mean', '50 % within', '90 %', '99 %', '99.9 %', 'Works most', 'Processor'];
    const rows = this.reports.map((report, number) => row(report, this.computed[number], number));
    at('simulated').replaceChildren(element('table', {},
      element('caption', {}, 'Simulated throughput, response times and processor time of a request, with 95 % confidence; beside it the model’s throughput'),
      element('thead', {}, element('tr', {}, ...head.map((words) => element('th', { scope: 'col' }, words)))),
      element('tbody', {}, ...rows)));
  }
}

function address(text, type) {
  return URL.createObjectURL(new Blob([text], { type }));
}

function row(report, computed, number) {
  const { throughput, latency } = report;
  const { title } = architecture(computed.architecture);
  const notes = [];
  if (!report.is_whole) notes.push(`partial: ${report.requests} requests`);
  if (report.load === 'overloaded') notes.push(`overloaded: ${perSecond(report.offered)} arrive, ${perSecond(report.capacity.mean)} are served`);
  if (report.load === 'rising') notes.push('times still rise: more requests take longer');
  const off = computed.loaded.throughput / throughput.mean - 1;
  const most = report.resources.find((resource) => resource.name === report.binding);
  const within = ['p50', 'p90', 'p99', 'p999'].map((name) =>
    element('td', {}, endless(latency[name]), element('small', {}, bounds(latency[`${name}_bounds`]))));
  return element('tr', { class: computed.architecture },
    element('th', { scope: 'row' }, title, ...notes.map((words) => element('small', { class: 'partial' }, words))),
    element('td', {}, rate(throughput.mean), element('small', {}, `± ${percent(throughput.half_width / throughput.mean)}`)),
    element('td', {}, rate(computed.loaded.throughput), element('small', {}, `${off >= 0 ? '+' : '−'}${Math.abs(off * 100).toFixed(1)} %`)),
    element('td', {}, endless(latency.mean.mean), element('small', {}, around(latency.mean))),
    ...within,
    element('td', {}, report.binding, element('small', {}, most ? percent(most.working) : '')),
    element('td', {}, time(report.processor_seconds)));
}

/** A time, which for an overloaded server has no limit. */
function endless(seconds) {
  return seconds === null ? 'no limit' : time(seconds);
}

function around({ mean, half_width: half }) {
  return mean === null || half === null ? '' : `± ${percent(half / mean)}`;
}

/** The bounds of an interval; one that is too short for its upper bound has none. */
function bounds([low, high]) {
  if (low === null) return '';
  return high === null ? `${time(low)} at least` : span(low, high);
}
