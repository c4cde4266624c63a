// Firefox without a window, driven by WebDriver BiDi (W3C), the protocol that it speaks itself: one WebSocket with commands
// and events in JSON. Node.js has the WebSocket; nothing else is needed.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

/** So long a command may take. */
const COMMAND_MS_MAX = 60_000;

/** Debian's Firefox, with a profile that is made for it. */
export async function open(profile) {
  const path = process.env.PAGE_FIREFOX ?? '/usr/bin/firefox-esr';
  const words = ['--headless', '--no-remote', '--profile', profile, '--remote-debugging-port', '0'];
  const child = spawn(path, words, { stdio: ['ignore', 'ignore', 'pipe'], env: { ...process.env, MOZ_DISABLE_CONTENT_SANDBOX: '1' } });
  const lines = createInterface(child.stderr);
  const address = await new Promise((found, failed) => {
    child.once('error', failed);
    child.once('exit', (status) => failed(new Error(`Firefox ended with ${status} before it listened`)));
    lines.on('line', (line) => {
      const told = line.match(/WebDriver BiDi listening on (ws:\S+)/);
      if (told) found(told[1]);
    });
  });
  const socket = new WebSocket(`${address}/session`);
  await new Promise((opened, failed) => {
    socket.onopen = opened;
    socket.onerror = () => failed(new Error(`${address} does not answer`));
  });
  const browser = new Browser(child, socket);
  const { capabilities } = await browser.ask('session.new', { capabilities: {} });
  browser.version = capabilities.browserVersion;
  await browser.ask('session.subscribe', { events: ['log.entryAdded'] });
  return browser;
}

class Browser {
  constructor(child, socket) {
    this.child = child;
    this.socket = socket;
    this.asked = new Map();
    /** What pages complained of. */
    this.complaints = [];
    socket.onmessage = ({ data }) => this.hear(JSON.parse(data));
  }

  hear({ id, type, result, message, method, params }) {
    if (method === 'log.entryAdded' && ['error', 'warn'].includes(params.level)) this.complaints.push(params.text);
    const waits = this.asked.get(id);
    if (!waits) return;
    this.asked.delete(id);
    clearTimeout(waits.timer);
    if (type === 'error') waits.failed(new Error(message));
    else waits.done(result);
  }

  /** Sends a command and answers its result. */
  ask(method, params) {
    const id = (this.last = (this.last ?? 0) + 1);
    this.socket.send(JSON.stringify({ id, method, params }));
    return new Promise((done, failed) => {
      const timer = setTimeout(() => failed(new Error(`${method} took more than ${COMMAND_MS_MAX} ms`)), COMMAND_MS_MAX);
      this.asked.set(id, { done, failed, timer });
    });
  }

  /** A new page of this size, with the address loaded. */
  async visit(url, viewport) {
    const { context } = await this.ask('browsingContext.create', { type: 'tab' });
    await this.ask('browsingContext.setViewport', { context, viewport });
    await this.ask('browsingContext.navigate', { context, url, wait: 'complete' });
    return new Page(this, context);
  }

  async close() {
    this.socket.close();
    this.child.kill('SIGTERM');
    await once(this.child, 'exit');
  }
}

class Page {
  constructor(browser, context) {
    this.browser = browser;
    this.context = context;
  }

  /** Computes an expression in the page; its value must have a JSON form. */
  async value(expression) {
    const target = { context: this.context };
    const told = await this.browser.ask('script.evaluate', {
      expression: `Promise.resolve(${expression}).then((value) => JSON.stringify(value))`, target, awaitPromise: true,
    });
    if (told.type === 'exception') throw new Error(told.exceptionDetails.text);
    return told.result.type === 'undefined' ? undefined : JSON.parse(told.result.value);
  }

  /** Waits until an expression is true. */
  until(expression) {
    return this.value(`new Promise((done) => {
      const look = () => ((${expression}) ? done(true) : setTimeout(look, 50));
      look();
    })`);
  }

  /** The bytes of a picture of the page, as PNG. */
  async picture() {
    const { data } = await this.browser.ask('browsingContext.captureScreenshot', { context: this.context, origin: 'document' });
    return Buffer.from(data, 'base64');
  }

  close() {
    return this.browser.ask('browsingContext.close', { context: this.context });
  }
}
