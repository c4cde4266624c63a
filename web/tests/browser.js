// The browser, and the command that serves the page to it.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { chromium } from 'playwright-core';

/** Nothing but the page: no sandbox, as tests may run as root; no guesses, no updates, nothing of its own on the network. */
const FLAGS = [
  '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync',
];

/** The command under test. */
export function command() {
  return process.env.PAGE_COMMAND ?? 'target/debug/bywash';
}

/** Debian's Chromium without a window, with a profile that is made for it. */
export function open(profile) {
  const executablePath = process.env.PAGE_BROWSER ?? '/usr/bin/chromium';
  return chromium.launchPersistentContext(profile, { executablePath, headless: true, args: FLAGS, timeout: 60_000 });
}

/** `bywash plan web`, with the address that it tells. */
export async function serve() {
  const child = spawn(command(), ['plan', 'web', '--port', '0'], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [line] = await once(createInterface(child.stdout), 'line');
  return {
    address: line.trim(),
    async end() {
      child.kill('SIGTERM');
      const [status] = await once(child, 'exit');
      if (status !== 143) throw new Error(`bywash plan web ended with ${status}, and not of SIGTERM`);
    },
  };
}
