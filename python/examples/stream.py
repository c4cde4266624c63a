"""A gibibyte goes to another process, in pieces of 256 KiB: the one fills every piece, the other sums every word of
it, by NumPy, and nothing is copied on the way.

python stream.py [MIB]
"""

import multiprocessing
import sys
import time

import numpy as np

import bywash

PIECE = 256 << 10


def path_over(socket):
    # Both ends are this program, which does not write to what it has shipped: that is what "trusted" promises.
    return bywash.Path.over(socket, class_="trusted")


def source(socket, pieces):
    path = path_over(socket)
    for number in range(pieces):
        # Waits here when the sink is slower: the arena is what there can be on the way.
        container = path.alloc(PIECE)
        words = np.frombuffer(container, np.uint64)
        words.fill(number)
        # What is still looked at cannot be shipped.
        del words
        path.ship(container)


def sink(path):
    found = received = 0
    for message in path:
        [piece] = message
        found += int(np.frombuffer(piece, np.uint64).sum())
        received += len(piece)
    return found, received


def main():
    mib = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    pieces = mib * (1 << 20) // PIECE
    here, there = bywash.socket_pair()
    other = multiprocessing.get_context("spawn").Process(target=source, args=(there, pieces))
    other.start()
    there.close()
    with path_over(here) as path:
        begin = time.perf_counter()
        found, received = sink(path)
        seconds = time.perf_counter() - begin
        copied = path.stats().copied_out_bytes
    other.join()
    assert received == mib << 20, "something is missing"
    assert found == sum(range(pieces)) * (PIECE // 8), "the sum is another one"
    print(f"{mib} MiB in {seconds:.3f} s, {mib / 1024 / seconds:.1f} GiB/s, {copied} bytes copied")
    sys.exit(other.exitcode)


if __name__ == "__main__":
    main()
