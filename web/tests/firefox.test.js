// The planner's page in Firefox: that it computes, simulates and stops there as in Chromium.
//
//   PAGE_COMMAND=target/debug/bywash PAGE_OUT=target/page/shots node --experimental-websocket --test web/tests/firefox.test.js

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { command, serve } from './browser.js';
import { open } from './firefox.js';

const SHOTS = process.env.PAGE_OUT ?? 'target/page/shots';
const DESK = { width: 1280, height: 800 };
const PHONE = { width: 390, height: 844 };
const LOAD = '#server=carrera-table-2&requests=web&view=closed&show=response&over=load.arrivals&load.arrivals=4000+%2Fs';

const path = process.env.PAGE_FIREFOX ?? '/usr/bin/firefox-esr';
const missing = typeof WebSocket === 'undefined' ? 'Node.js 22 is needed, or --experimental-websocket' : existsSync(path) ? false : `there is no ${path}`;

describe('the page in Firefox', { skip: missing }, () => {
  let folder;
  let server;
  let browser;

  before(async () => {
    folder = mkdtempSync(join(tmpdir(), 'bywash-firefox-'));
    mkdirSync(join(folder, 'profile'));
    mkdirSync(SHOTS, { recursive: true });
    server = await serve();
    browser = await open(join(folder, 'profile'));
    console.log(`# Firefox ${browser.version}`);
  });

  after(async () => {
    await browser?.close();
    await server?.end();
    if (folder) rmSync(folder, { recursive: true, force: true });
  });

  async function visit(link, viewport = DESK) {
    const page = await browser.visit(server.address + link, viewport);
    await page.until('document.documentElement.dataset.ready !== undefined');
    return page;
  }

  test('opens without complaint and says what the command says', async () => {
    const page = await visit('');
    assert.equal(await page.value("document.getElementById('server').value"), 'today-25g');
    const file = join(folder, 'server.toml');
    writeFileSync(file, await page.value("document.getElementById('text').value"));
    const wanted = JSON.parse(execFileSync(command(), ['plan', 'model', file, '--json'], { encoding: 'utf8' }));
    const bindings = await page.value("[...document.querySelectorAll('.card .binding')].map((one) => one.textContent)");
    assert.deepEqual(bindings.map((name) => name.replaceAll(' ', '-')), wanted.map((one) => one.bound.binding));
    assert.deepEqual(browser.complaints, []);
    await page.close();
  });

  test('moves with a slider', async () => {
    const page = await visit('#server=carrera-table-2&requests=web');
    const rates = "[...document.querySelectorAll('#bars b')].map((one) => one.textContent)";
    const before = await page.value(rates);
    await page.value(`(() => {
      const slider = document.getElementById('slider-machine.disks.count');
      slider.value = 0;
      slider.dispatchEvent(new Event('input'));
    })()`);
    assert.notDeepEqual(await page.value(rates), before);
    await page.close();
  });

  test('simulates arrivals with percentiles, and stops when it is told to', async () => {
    const page = await visit(LOAD);
    await page.value("document.getElementById('run').click()");
    await page.until("document.getElementById('simulated-told').textContent === 'Simulated.'");
    const rows = await page.value("[...document.querySelectorAll('#simulated tbody tr')].map((row) => row.cells[6].textContent)");
    assert.equal(rows.length, 4);
    assert.ok(rows.every((text) => /^[\d.]+ (ms|µs)[\d.]+ to /.test(text)), `${rows}`);
    await page.value(`(() => {
      document.getElementById('served').value = '1000000';
      document.getElementById('served').dispatchEvent(new Event('change', { bubbles: true }));
      document.getElementById('run').click();
    })()`);
    await page.until("document.getElementById('progress').value > 0");
    await page.value("document.getElementById('run').click()");
    await page.until("document.getElementById('simulated-told').textContent.startsWith('Stopped')");
    assert.deepEqual(browser.complaints, []);
    await page.close();
  });

  test('executes a program with each structure, and stops when it is told to', async (t) => {
    const page = await visit('#server=today-10g&requests=web&program=streams');
    if (await page.value("document.getElementById('programs').dataset.missing") !== '') {
      await page.close();
      return t.skip('the page has no programs');
    }
    await page.value("document.getElementById('execute').click()");
    await page.until("document.getElementById('execute-told').textContent === 'Executed.' && document.querySelector('#lanes svg')");
    assert.match(await page.value("document.getElementById('output').textContent"), /^23 streams: 12058624 bytes, /m);
    const heads = await page.value("[...document.querySelectorAll('#executed thead th')].map((one) => one.textContent)");
    assert.deepEqual(heads, ['', 'Conventional', 'User-level']);
    await page.value(`(() => {
      document.getElementById('example').value = 'database';
      document.getElementById('example').dispatchEvent(new Event('change'));
      document.getElementById('arguments').value = '/bank --rows 1000000';
      document.getElementById('execute').click();
    })()`);
    await page.until("/[0-9,]{9,} instructions/.test(document.getElementById('executed-so-far').textContent)");
    await page.value("document.getElementById('execute').click()");
    await page.until("document.getElementById('execute-told').textContent.startsWith('Stopped.')");
    writeFileSync(join(SHOTS, 'firefox-program.png'), await page.picture());
    assert.deepEqual(browser.complaints, []);
    await page.close();
  });

  test('is as wide as the screen', async () => {
    for (const [name, viewport] of [['firefox-desk', DESK], ['firefox-phone', PHONE]]) {
      const page = await visit(LOAD, viewport);
      const [wide, room] = await page.value('[document.documentElement.scrollWidth, innerWidth]');
      assert.ok(wide <= room, `${name}: ${wide} > ${room}`);
      writeFileSync(join(SHOTS, `${name}.png`), await page.picture());
      await page.close();
    }
  });
});
