"""A message goes to another process and comes back, again and again: how long does that take?

python pingpong.py [ROUNDS]
"""

import multiprocessing
import sys
import time

import bywash


def pong(socket):
    """The other process sends everything back as it came."""
    path = bywash.Path.over(socket)
    for message in path:
        path.ship(message)


def ping(path, rounds):
    begin = time.perf_counter()
    for number in range(rounds):
        container = path.alloc(64)
        container.copy_from(number.to_bytes(8, "little"))
        path.ship(container)
        [back] = path.receive()
        assert len(back) == 64
    seconds = time.perf_counter() - begin
    print(f"{rounds} rounds, {seconds / rounds * 1e9:.0f} ns each")


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    here, there = bywash.socket_pair()
    other = multiprocessing.get_context("spawn").Process(target=pong, args=(there,))
    other.start()
    there.close()
    with bywash.Path.over(here) as path:
        ping(path, rounds)
    other.join()
    sys.exit(other.exitcode)


if __name__ == "__main__":
    main()
