// All settings in the part of the address behind `#`, which stays in the browser: a link shows what is shown here.

import { differences, differing, kind } from './description.js';

/** The server of a link whose description is somebody's own. */
const OWN = 'own';
/** Settings that are not of the description: what each may be, first what it is unless it is said. */
const VIEWS = {
  view: { begins: 'bound', may: /^(bound|closed)$/ },
  show: { begins: 'bound', may: /^(bound|closed|response)$/ },
  served: { begins: '20000', may: /^(20000|200000|1000000)$/ },
  seed: { begins: '1', may: /^\d{1,9}$/ },
  over: { begins: '', may: /^[a-z0-9.-]*$/ },
  program: { begins: 'web', may: /^(web|video|streams|database|own)$/ },
  until: { begins: '1', may: /^(0\.01|0\.1|1|10)$/ },
};
/** So long the address stays after a change: browsers refuse to change it many times a second. */
const ADDRESS_REST_MS = 250;

/** What a link without settings shows. */
export function beginning(presets) {
  const views = Object.entries(VIEWS).map(([name, { begins }]) => [name, begins]);
  const { name: server, description } = presets.servers[0];
  return { server, description, ...Object.fromEntries(views) };
}

/** What `state` begins with: the machine of its server, with requests of its kind. */
export function base(presets, server, requests) {
  const found = presets.servers.find((one) => one.name === server);
  const request = presets.requests.map((one) => one.request).find((one) => Object.hasOwn(one, requests));
  if (!found) return undefined;
  const own = found.description;
  return { ...own, request: Object.hasOwn(own.request, requests) ? own.request : (request ?? own.request) };
}

/** The settings of `state`. */
export function written(state, presets) {
  const requests = kind(state.description);
  const known = base(presets, state.server, requests);
  const pairs = [['server', known ? state.server : OWN], ['requests', requests]];
  for (const [name, { begins }] of Object.entries(VIEWS)) {
    if (state[name] !== begins) pairs.push([name, state[name]]);
  }
  return new URLSearchParams([...pairs, ...differences(state.description, known ?? {})]).toString();
}

/** The state of settings; those that are not there are as in the beginning. */
export function read(text, presets) {
  const state = beginning(presets);
  const link = new URLSearchParams(text);
  if (!link.has('server')) return state;
  const taken = ['server', 'requests', ...Object.keys(VIEWS)];
  state.server = link.get('server');
  for (const [name, { may }] of Object.entries(VIEWS)) {
    if (may.test(link.get(name) ?? '')) state[name] = link.get(name) ?? '';
  }
  const pairs = [...link].filter(([path]) => !taken.includes(path));
  const known = base(presets, state.server, link.get('requests'));
  if (!known) state.server = OWN;
  state.description = differing(known ?? {}, pairs);
  return state;
}

/** Keeps the address up to date. */
export class Address {
  keep(text) {
    this.text = text;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.now(), ADDRESS_REST_MS);
  }

  /** At once, for who copies it. */
  now() {
    clearTimeout(this.timer);
    if (this.text !== undefined) history.replaceState(null, '', `#${this.text}`);
    return location.href;
  }
}
