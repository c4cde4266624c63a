// The half of the planner that computes: a WebAssembly module that is asked and answers in JSON.

import { unpacked } from './packed.js';

/** What the engine would not do; the message is for people. */
export class Refused extends Error {}

export class Engine {
  /** From the text in which the module is kept in the page. */
  static async open(base64) {
    return new Engine(await WebAssembly.compile(await unpacked(base64)));
  }

  /** `watch` hears which share of a simulation is done, and answers whether to go on, as 1 or 0. */
  constructor(module, watch = () => 1) {
    this.module = module;
    this.watch = watch;
    this.begin();
  }

  begin() {
    this.exports = new WebAssembly.Instance(this.module, { page: { watch: this.watch } }).exports;
  }

  /** Asks; answers what was done, or throws Refused. */
  ask(question) {
    const told = JSON.parse(this.answer(JSON.stringify(question)));
    if (told.refused !== undefined) throw new Refused(told.refused);
    return told.done;
  }

  /** Passes the bytes of a program and its files, before the question that begins its execution. */
  give(bytes) {
    const at = this.exports.room_for_program(bytes.length);
    new Uint8Array(this.exports.memory.buffer, at, bytes.length).set(bytes);
  }

  /** Asks about the program of this engine; answers what was done, or throws Refused. */
  askOfProgram(question) {
    const told = JSON.parse(this.answer(JSON.stringify(question), 'answer_about_program'));
    if (told.refused !== undefined) throw new Refused(told.refused);
    return told.done;
  }

  answer(question, by = 'answer_question') {
    const bytes = new TextEncoder().encode(question);
    try {
      const at = this.exports.room_for_question(bytes.length);
      // The memory is looked up each time: it moves when it grows.
      new Uint8Array(this.exports.memory.buffer, at, bytes.length).set(bytes);
      const length = this.exports[by]();
      const answer = new Uint8Array(this.exports.memory.buffer, this.exports.answer_at(), length);
      return new TextDecoder().decode(answer);
    } catch (fault) {
      // What stopped in the middle is not asked again: the next question finds a new one.
      this.begin();
      throw new Refused(`the engine stopped: ${fault.message}`);
    }
  }
}
