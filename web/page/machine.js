// A drawing of the machine: each resource coloured by how busy it is, with its name and number beside the colour.

import { shape } from './element.js';
import { kind, get } from './description.js';
import { percent } from './quantity.js';

const SIZE = '0 0 200 194';
// In the order of the engine's resources: the boxes, and the name that fits in each.
const BOXES = [
  { x: 0, y: 0, width: 124, height: 44, name: 'processors' },
  { x: 0, y: 66, width: 200, height: 28, name: 'interconnect' },
  { x: 0, y: 116, width: 97, height: 40, name: 'interfaces' },
  { x: 0, y: 155, width: 97, height: 38, name: 'processors' },
  { x: 103, y: 116, width: 97, height: 40, name: 'disks' },
  { x: 103, y: 155, width: 97, height: 38, name: 'processors' },
];
const MEMORY = { x: 142, y: 0, width: 58, height: 44 };
/** Boxes that are higher than this have their number below their name. */
const TWO_LINES = 30;
const COUNTED = [true, false, true, false, true, false];
const IN_DEVICES = [3, 5];

/** Draws it: `busy` for each resource (0 to 1), how many `units` there are, which of them binds. */
export function machine(description, architecture, busy, units, binding, words) {
  const isActive = architecture === 'active' || architecture === 'direct';
  const boxes = BOXES.map((box, number) => {
    const isIdle = IN_DEVICES.includes(number) && !isActive;
    return resource(box, busy[number], COUNTED[number] ? units[number] : 1, number === binding, isIdle);
  });
  return shape('svg', { viewBox: SIZE, role: 'img', 'aria-label': words, class: 'machine' },
    ...ways(description, architecture), memory(), ...boxes);
}

function resource({ x, y, width, height, name }, busy, count, binds, isIdle) {
  const share = Math.min(1, Math.max(0, busy));
  const classes = ['resource', binds && 'binds', isIdle && 'unused'].filter(Boolean).join(' ');
  const box = shape('rect', { x: x + 1, y: y + 1, width: width - 2, height: height - 2, rx: 4 });
  const many = count === 1 ? name : `${Number(count.toFixed(1))} ${name}`;
  const middle = y + height / 2 + 4;
  const [above, below] = height > TWO_LINES ? [middle - 8, middle + 8] : [middle, middle];
  const isBeside = above === below;
  const drawn = shape('g', { class: classes }, box,
    shape('text', { x: x + 8, y: above }, many),
    shape('text', { x: isBeside ? x + width - 8 : x + 8, y: below, class: 'busy', 'text-anchor': isBeside ? 'end' : 'start' },
      isIdle ? 'unused' : `${percent(busy)}${binds ? ' ◆' : ''}`));
  drawn.style.setProperty('--busy', share);
  return drawn;
}

function memory() {
  const { x, y, width, height } = MEMORY;
  return shape('g', { class: 'resource plain' },
    shape('rect', { x: x + 1, y: y + 1, width: width - 2, height: height - 2, rx: 4 }),
    shape('text', { x: x + width / 2, y: y + height / 2 + 4, 'text-anchor': 'middle' }, 'memory'));
}

/** The way that data takes, as arrows between the boxes. */
function ways(description, architecture) {
  const work = kind(description);
  const writes = share(get(description, `request.${work}.writes`));
  const hasNetwork = work !== 'blocks' && work !== 'database';
  const isHandedOn = architecture === 'direct' && ['web', 'video', 'streams'].includes(work);
  // Of disks, up is out of them; of the network, down is out to it.
  const [out, into] = [writes < 1, writes > 0 || work === 'database'];
  const drawn = [arrow(151, 117, 151, 93, out, into)];
  if (hasNetwork) drawn.push(arrow(48, 93, 48, 117, out, into));
  if (!isHandedOn) drawn.push(arrow(171, 67, 171, 43, true, true));
  if (architecture === 'conventional') drawn.push(arrow(142, 22, 124, 22, true, true));
  return drawn;
}

function share(text) {
  return text === undefined ? 0 : parseFloat(text) / 100;
}

/** From one point to another, pointed at its end, at its beginning, or at both. */
function arrow(x1, y1, x2, y2, forth, back) {
  const [dx, dy] = [Math.sign(x2 - x1), Math.sign(y2 - y1)];
  const head = (x, y, towards) =>
    `M${x - towards * dx * 6 - dy * 4} ${y - towards * dy * 6 - dx * 4}L${x} ${y}` +
    `L${x - towards * dx * 6 + dy * 4} ${y - towards * dy * 6 + dx * 4}`;
  const heads = `${forth ? head(x2, y2, 1) : ''}${back ? head(x1, y1, -1) : ''}`;
  return shape('path', { class: 'way', d: `M${x1} ${y1}L${x2} ${y2}${heads}` });
}
