// Executions beside the page: one engine for each structure, in steps between which messages are heard.

import { Engine, Refused } from './engine.js';

/** So long a step should take; and the instructions of the first one. */
const STEP_MS = 80;
const FIRST_STEP = 200_000;
/** A step is at most so many times longer than the one before. */
const GROWTH_MAX = 4;

export class Executing {
  constructor(module, { bytes, questions }) {
    this.engines = questions.map(() => new Engine(module));
    this.bytes = new Uint8Array(bytes);
    this.questions = questions;
  }

  /** Executes with one structure after the other. */
  async all() {
    for (const number of this.questions.keys()) {
      if (this.isStopped) break;
      try {
        await this.one(number);
      } catch (refused) {
        if (!(refused instanceof Refused)) throw refused;
        postMessage({ number, refused: refused.message });
        break;
      }
    }
    postMessage({ ended: true });
  }

  async one(number) {
    const engine = this.engines[number];
    engine.give(this.bytes);
    engine.askOfProgram(this.questions[number]);
    let instructions = FIRST_STEP;
    for (let isOver = false; !isOver && !this.isStopped;) {
      const begun = performance.now();
      const told = engine.askOfProgram({ ask: 'continue', instructions });
      const took = Math.max(performance.now() - begun, STEP_MS / GROWTH_MAX);
      instructions = Math.max(FIRST_STEP / 10, Math.round((instructions * STEP_MS) / took));
      postMessage({ number, told });
      isOver = told.is_over;
      await heard();
    }
    postMessage({ number, outcome: engine.askOfProgram({ ask: 'result' }) });
  }

  /** Answers what is asked of an execution that is over, or stops. */
  hear({ stop, lanes, spans }) {
    if (stop) this.isStopped = true;
    if (lanes) {
      const { number, from, to, parts } = lanes;
      const { lanes: drawn } = this.engines[number].askOfProgram({ ask: 'lanes', from, to, parts });
      postMessage({ number, lanes: { number, from, to, lanes: drawn } });
    }
    if (spans) postMessage({ number: spans.number, spans: this.engines[spans.number].askOfProgram({ ask: 'spans' }) });
  }
}

/** Lets messages that have come be heard. */
function heard() {
  return new Promise((done) => { setTimeout(done); });
}
