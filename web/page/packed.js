// What the page keeps in itself: bytes that were compressed, as text.

/** The bytes of a text in which they are kept. */
export function unpacked(base64) {
  const packed = Uint8Array.from(atob(base64.trim()), (character) => character.charCodeAt(0));
  const bytes = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Response(bytes).arrayBuffer();
}
