// Results as people read them.

const RATES = [['GiB/s', 2 ** 30], ['MiB/s', 2 ** 20], ['KiB/s', 2 ** 10], ['B/s', 1]];
const TIMES = [['s', 1], ['ms', 1e-3], ['µs', 1e-6], ['ns', 1e-9]];

/** Bytes a second. */
export function rate(bytes) {
  return inLargest(bytes, RATES);
}

/** Seconds. */
export function time(seconds) {
  return inLargest(seconds, TIMES);
}

/** A share of one. */
export function percent(share) {
  const hundredths = share * 100;
  return `${hundredths > 0 && hundredths < 1 ? '< 1' : hundredths.toFixed(0)} %`;
}

/** One value against another. */
export function times(ratio) {
  return `${ratio >= 10 ? ratio.toFixed(0) : ratio.toFixed(2)}×`;
}

/** A range of seconds, with its unit once. */
export function span(low, high) {
  const [name, size] = unit(high, true);
  return `${digits(low / size)} to ${digits(high / size)} ${name}`;
}

/** A whole number, with a comma between thousands. */
export function count(number) {
  return number.toLocaleString('en');
}

/** How many come in a second. */
export function perSecond(number) {
  return `${number >= 1000 ? Math.round(number).toLocaleString('en') : number.toPrecision(3)}/s`;
}

/** The unit in which `most` is written, with what divides by it, for an axis. */
export function unit(most, isTime) {
  return (isTime ? TIMES : RATES).find(([, size]) => most >= size) ?? (isTime ? TIMES : RATES).at(-1);
}

/** A number with three digits that count. */
export function digits(number) {
  if (number === 0) return '0';
  const before = Math.max(0, Math.floor(Math.log10(Math.abs(number))) + 1);
  return number.toFixed(Math.max(0, Math.min(3, 3 - before)));
}

function inLargest(amount, units) {
  const [name, size] = units.find(([, least]) => amount >= least) ?? units.at(-1);
  return `${digits(amount / size)} ${name}`;
}
