"""Draws a counter that moves across a window: a block whose stripes are the bits of the frame's number.

Each frame is drawn in memory that the display server has mapped, so that nothing is copied to it.

python counter.py [FRAMES]
"""

import sys
import time

import bywash

WIDTH, HEIGHT = 640, 360
STRIPE, STRIPES = 16, 16
GRAY, BRIGHT, DARK = (bytes([*color, 255]) for color in ((64, 64, 64), (0, 176, 255), (48, 48, 48)))


def row_of(number):
    """A row of pixels (blue, green, red, and a byte that is ignored) across the block."""
    left = number * 4 % (WIDTH - STRIPE * STRIPES)
    bits = [number >> bit & 1 for bit in reversed(range(STRIPES))]
    block = b"".join((BRIGHT if bit else DARK) * STRIPE for bit in bits)
    return GRAY * left + block + GRAY * (WIDTH - left - STRIPE * STRIPES)


def draw(frame, number):
    across, beside = row_of(number), GRAY * WIDTH
    with memoryview(frame) as pixels:
        for y in range(HEIGHT):
            at = y * frame.row_bytes
            pixels[at : at + 4 * WIDTH] = across if HEIGHT // 3 <= y < 2 * HEIGHT // 3 else beside


def main():
    frames = int(sys.argv[1]) if len(sys.argv) > 1 else 600
    with bywash.Surface(WIDTH, HEIGHT, title="counter") as surface:
        begin = time.perf_counter()
        for number in range(frames):
            frame = surface.frame()  # waits until the display asks for one, and has returned one
            draw(frame, number)
            surface.present(frame)
        surface.finish()
        seconds = time.perf_counter() - begin
        print(f"{surface.stats().presented} frames, {frames / seconds:.0f} a second")


if __name__ == "__main__":
    main()
