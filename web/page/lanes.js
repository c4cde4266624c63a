// A timeline: a lane for each processor and device, filled as far as it worked at that time; and a window that moves.

import { at, shape } from './element.js';
import { time, unit } from './quantity.js';

const LANE = 13;
const GAP = 4;
/** Between the processors and the devices. */
const GROUP = 14;
const AXIS = 24;
/** Room for names, in a wide drawing and in a narrow one. */
const NAMES = [158, 112];
const NARROW = 560;
/** A window is not shorter, in seconds. */
const SHORTEST = 1e-8;
/** Each way of moving the window: from its beginning and its end to others, as shares of its length. */
const MOVES = { earlier: [-0.5, -0.5], later: [0.5, 0.5], closer: [0.25, -0.25], farther: [-0.5, 0.5] };

export class Lanes {
  /** `ask(number, window)` asks for the lanes of a window; they come to `draw`. */
  constructor(ask) {
    this.ask = ask;
    for (const [name, by] of Object.entries(MOVES)) {
      at(name).addEventListener('click', () => this.move(by));
    }
    at('whole').addEventListener('click', () => this.show(0, this.most));
  }

  /** Looks at the result of a structure, from its beginning to the end of what was recorded. */
  look(number, { recorded, end }, structure) {
    this.number = number;
    this.structure = structure;
    this.most = recorded;
    at('recorded').textContent = recorded < end ? `The timeline has the first million spans of the devices: ${time(recorded)} of ${time(end)}.` : '';
    this.show(0, recorded);
  }

  /** Draws anew where there is more room than before, or less. */
  fit() {
    const room = at('lanes').clientWidth;
    if (this.number !== undefined && room > 0 && Math.max(280, room) !== this.width) this.show(this.from, this.to);
  }

  move([before, behind]) {
    const length = this.to - this.from;
    const [from, to] = [this.from + before * length, this.to + behind * length];
    const kept = Math.min(this.most, Math.max(SHORTEST, to - from));
    const begin = Math.min(Math.max(0, from), this.most - kept);
    this.show(begin, begin + kept);
  }

  show(from, to) {
    [this.from, this.to] = [from, to];
    this.width = Math.max(280, at('lanes').clientWidth || 700);
    this.names = NAMES[this.width < NARROW ? 1 : 0];
    this.ask(this.number, { from, to, parts: Math.floor(this.width - this.names - 8) });
  }

  draw({ number, from, to, lanes }) {
    // An answer to an earlier question.
    if (number !== this.number || from !== this.from || to !== this.to) return;
    const first = lanes.findIndex((lane) => !lane.is_processor);
    const y = (lane) => lane * (LANE + GAP) + (first >= 0 && lane >= first ? GROUP : 0);
    const height = y(lanes.length) + AXIS;
    const drawn = shape('svg', {
      viewBox: `0 0 ${this.width} ${height}`, width: this.width, height, role: 'img', class: this.structure.name,
      'aria-label': `Timeline of ${this.structure.title.toLowerCase()} from ${time(from)} to ${time(to)}: ` +
        `${lanes.map((lane) => `${lane.name} ${mean(lane.busy)} % busy`).join(', ')}`,
    });
    drawn.append(...this.axis(height), ...lanes.flatMap((lane, index) => this.lane(lane, y(index))));
    at('lanes').replaceChildren(drawn);
  }

  lane({ name, busy, is_processor: isProcessor }, y) {
    const x = this.names;
    const width = this.width - x - 8;
    const step = width / busy.length;
    const text = this.names < NAMES[0] ? name.replace('processor', 'proc.').replace('interfaces', 'interf.') : name;
    return [
      shape('text', { x: x - 8, y: y + LANE - 3, 'text-anchor': 'end' }, text),
      shape('rect', { class: 'room', x, y, width, height: LANE }),
      shape('path', { class: isProcessor ? 'worked' : 'worked device', d: path(busy, x, y, step) }, shape('title', {}, `${name}: ${mean(busy)} % of this window`)),
    ];
  }

  /** Moments below the lanes, and a line through them at each. */
  axis(height) {
    const [name, size] = unit(this.to, true);
    const width = this.width - this.names - 8;
    const step = round((this.to - this.from) / Math.max(2, Math.floor(width / 90)));
    const first = Math.ceil(this.from / step);
    const many = Math.floor(this.to / step) - first + 1;
    return Array.from({ length: Math.max(0, many) }, (_, number) => (first + number) * step).flatMap((moment) => {
      const x = this.names + (width * (moment - this.from)) / (this.to - this.from);
      const isLast = x > this.width - 50;
      return [
        shape('path', { class: 'grid', d: `M${x.toFixed(1)} 0V${height - AXIS + 4}` }),
        shape('text', { x: isLast ? this.width - 4 : x, y: height - 7, 'text-anchor': isLast ? 'end' : 'middle' }, `${plain(moment / size)} ${name}`),
      ];
    });
  }
}

/** Steps as high as a lane was busy, from its bottom. */
function path(busy, x, y, step) {
  let drawn = '';
  for (let number = 0; number < busy.length;) {
    let end = number + 1;
    while (end < busy.length && busy[end] === busy[number]) end += 1;
    if (busy[number] > 0) {
      // What worked at all is seen.
      const high = Math.max(1, (LANE * busy[number]) / 100);
      const wide = (end - number) * step;
      drawn += `M${(x + number * step).toFixed(1)} ${y + LANE}v${-high.toFixed(1)}h${wide.toFixed(1)}v${high.toFixed(1)}z`;
    }
    number = end;
  }
  return drawn;
}

function mean(busy) {
  return Math.round(busy.reduce((sum, one) => sum + one, 0) / busy.length);
}

/** A length not shorter than `least` that begins with 1, 2 or 5. */
function round(least) {
  const ten = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((digit) => digit * ten).find((one) => one >= least * 0.999);
}

/** A number without zeros at its end. */
function plain(number) {
  return String(Number(number.toFixed(6)));
}
