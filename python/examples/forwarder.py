"""Three processes in a row: the one in the middle hands messages on without mapping or copying a byte.

python forwarder.py [MESSAGES]
"""

import multiprocessing
import os
import sys
import time

import bywash

LENGTH = 4000


def source(socket, messages):
    path = bywash.Path.over(socket)
    for number in range(messages):
        container = path.alloc(LENGTH)
        container.copy_from(bytes([number % 256]) * LENGTH)
        path.ship(container)


def forwarder(from_source, to_sink):
    # It ships nothing of its own, so it needs no arena.
    first = bywash.Path.over(from_source, class_="forward", arena_bytes=0)
    second = bywash.Path.over(to_sink, class_="forward", arena_bytes=0)
    for message in first:
        # What can be seen without a look inside.
        if message.nbytes == LENGTH and message.origin.uid == os.geteuid():
            second.ship(message)


def sink(path):
    messages = 0
    copy = bytearray(LENGTH)
    for message in path:
        assert message.copy_to(copy) == LENGTH
        assert copy == bytes([messages % 256]) * LENGTH, f"message {messages} is another one"
        messages += 1
    return messages


def main():
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    at_source, from_source = bywash.socket_pair()
    to_sink, at_sink = bywash.socket_pair()
    context = multiprocessing.get_context("spawn")
    others = [
        context.Process(target=source, args=(at_source, wanted)),
        context.Process(target=forwarder, args=(from_source, to_sink)),
    ]
    for other in others:
        other.start()
    for socket in (at_source, from_source, to_sink):
        socket.close()
    with bywash.Path.over(at_sink) as path:
        begin = time.perf_counter()
        messages = sink(path)
        seconds = time.perf_counter() - begin
    for other in others:
        other.join()
    print(f"{messages} messages, {seconds / messages * 1e9:.0f} ns each")
    sys.exit(messages != wanted or any(other.exitcode for other in others))


if __name__ == "__main__":
    main()
