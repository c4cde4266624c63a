// Simulates and executes beside the page, so that the page goes on answering.
//
// An execution is made in steps (executing.js), between which it hears that it is to stop.
//
// A simulation is one call that does not hear messages until it ends. Whether it is to stop it sees by an address that the
// page withdraws (a blob of one byte): what cannot be loaded any more means stop. That needs no memory in common, which
// pages get from servers only. A page that was opened as a file does not share addresses with what runs beside it: then
// nothing is looked at, the page is told so, and ends this by force.

import { Engine, Refused } from './engine.js';
import { Executing } from './executing.js';

/** Between two looks. */
const LOOK_MS = 100;

let last = 0;
let flag;
let canLook;
let number = 0;
let executing;

function isWithdrawn() {
  const request = new XMLHttpRequest();
  request.open('GET', flag, false);
  try {
    request.send();
    return false;
  } catch {
    return true;
  }
}

function watch(share) {
  const now = performance.now();
  if (now - last < LOOK_MS) return 1;
  last = now;
  postMessage({ number, share });
  return canLook && isWithdrawn() ? 0 : 1;
}

self.onmessage = ({ data }) => {
  if (data.questions) return simulate(data);
  if (data.program) {
    executing = new Executing(data.module, data.program);
    return executing.all();
  }
  return executing.hear(data);
};

function simulate(data) {
  const engine = new Engine(data.module, watch);
  flag = data.flag;
  canLook = !isWithdrawn();
  postMessage({ canLook });
  for (const question of data.questions) {
    if (canLook && isWithdrawn()) break;
    try {
      postMessage({ number, report: engine.ask(question) });
    } catch (refused) {
      if (!(refused instanceof Refused)) throw refused;
      postMessage({ refused: refused.message });
      break;
    }
    number += 1;
  }
  postMessage({ ended: true });
}
