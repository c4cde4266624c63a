// The four structures that are compared, in the order in which the engine answers them.

export const ARCHITECTURES = [
  { name: 'conventional', title: 'Conventional', says: 'the operating system does the I/O' },
  { name: 'user-level', title: 'User-level', says: 'programs do it, past the kernel' },
  { name: 'active', title: 'Active', says: 'devices run TCP and file system' },
  { name: 'direct', title: 'Direct', says: 'devices hand data to each other' },
];

/** The structure of this name. */
export function architecture(name) {
  return ARCHITECTURES.find((one) => one.name === name);
}

/** Its place among the four, from which it has its marks in a drawing. */
export function order(name) {
  return ARCHITECTURES.findIndex((one) => one.name === name);
}
