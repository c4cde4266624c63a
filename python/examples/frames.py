"""Video frames go from a camera's process to one that looks at them, as NumPy arrays that nobody copies.

A message has two pieces: a header that says what the frame is, and the frame. The camera draws right into the memory
that the viewer will see; the viewer measures it there.

python frames.py [FRAMES]
"""

import multiprocessing
import struct
import sys
import time

import numpy as np

import bywash

# Number of the frame, height, width, colours.
HEADER = struct.Struct("<QHHH")
SHAPE = (1080, 1920, 3)


def path_over(socket):
    # Both ends are this program; "trusted" is a promise about who is at the other end. The arena has room for a
    # few frames: one is drawn while others are on the way.
    return bywash.Path.over(socket, class_="trusted", arena_bytes=64 << 20)


def draw(frame, number):
    """A picture that moves: each frame another brightness, and a white bar that wanders to the right."""
    frame[:] = number % 200
    at = number * 16 % frame.shape[1]
    frame[:, at : at + 16] = 255


def camera(socket, frames):
    path = path_over(socket)
    for number in range(frames):
        header = path.alloc(HEADER.size)
        header.copy_from(HEADER.pack(number, *SHAPE))
        picture = path.alloc(SHAPE[0] * SHAPE[1] * SHAPE[2])
        draw(np.frombuffer(picture, np.uint8).reshape(SHAPE), number)
        path.ship(header, picture)


def view(message, number):
    """Looks at a frame where the camera has drawn it."""
    header, picture = message
    told, *shape = HEADER.unpack(header.tobytes())
    frame = np.frombuffer(picture, np.uint8).reshape(shape)
    assert told == number and not frame.flags.writeable
    assert frame.min() == number % 200, f"frame {number} is another one"
    return int(frame[0, :, 0].argmax()), frame.nbytes


def main():
    frames = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    here, there = bywash.socket_pair()
    other = multiprocessing.get_context("spawn").Process(target=camera, args=(there, frames))
    other.start()
    there.close()
    with path_over(here) as path:
        begin = time.perf_counter()
        looked_at, bar = 0, 0
        for number, message in enumerate(path):
            bar, nbytes = view(message, number)
            looked_at += nbytes
        seconds = time.perf_counter() - begin
        stats = path.stats()
    other.join()
    print(f"{stats.received} frames of {SHAPE[1]} x {SHAPE[0]}, {stats.received / seconds:.0f} a second")
    print(f"{looked_at / 2**20:.0f} MiB were drawn there and looked at here, and {stats.copied_out_bytes} bytes copied:")
    print(f"the headers. The bar is at {bar}.")
    sys.exit(other.exitcode or stats.received != frames)


if __name__ == "__main__":
    main()
