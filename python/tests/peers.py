"""The other process of the tests: python peers.py ROLE DESCRIPTOR-OR-NAME OPTIONS-AS-JSON [ARGUMENTS...]"""

import json
import os
import signal
import sys
import time

import bywash


def echo(path):
    """Sends everything back as it came."""
    for message in path:
        path.ship(message)


def lengths(path):
    """Answers the lengths of the pieces of each message, and lets it go."""
    for message in path:
        answer = ",".join(str(len(piece)) for piece in message).encode()
        del message
        container = path.alloc(len(answer))
        container.copy_from(answer)
        path.ship(container)


def send(path, count, nbytes):
    """Sends messages whose bytes are all their number."""
    for number in range(count):
        container = path.alloc(nbytes)
        container.copy_from(bytes([number % 256]) * nbytes)
        path.ship(container)


def add_one(path):
    """Adds one to each byte of what it receives, in place, and sends it back."""
    import numpy as np

    for message in path:
        [piece] = message
        np.add(np.frombuffer(piece, np.uint8), 1, out=np.frombuffer(piece, np.uint8))
        path.ship(message)


def hold(path, count):
    """Receives so many messages and keeps them until the other end asks for them by one more."""
    held = [path.receive() for _ in range(count)]
    path.receive()
    del held
    path.receive()


def mute(path):
    """Stays, and does nothing."""
    time.sleep(60)


def die(path):
    """Sends a message, and is killed when it has received one."""
    path.ship(path.alloc(8))
    path.receive()
    os.kill(os.getpid(), signal.SIGKILL)


def late(path, seconds):
    """Sends a message after a while, and stays until the other end closes."""
    time.sleep(seconds)
    path.ship(path.alloc(1))
    for _ in path:
        pass


def wait_for_interrupt(path, what):
    """Tells that it waits, and how that ended and after how long."""
    # Whoever runs the tests in the background of a shell has SIGINT ignored, and so would this process.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    path.ship(path.alloc(1))
    begin = time.monotonic()
    try:
        if what == "receive":
            path.receive()
        elif what == "alloc":
            held = [path.alloc(1 << 20) for _ in range(1000)]
            del held
        elif what == "over":
            here, there = bywash.socket_pair()
            bywash.Path.over(here, handshake_timeout=30)
            there.close()
        elif what == "accept":
            name = f"/tmp/bywash-test-{os.getpid()}"
            listener = bywash.Listener.bind(name)
            os.unlink(name)
            listener.accept()
        elif what == "ship":
            while True:
                path.ship(path.alloc(1))
    except KeyboardInterrupt:
        print(f"interrupted {time.time()}", flush=True)
        os._exit(0)
    print(f"went on after {time.monotonic() - begin}", flush=True)


def main():
    role, where, options, *arguments = sys.argv[1:]
    options = json.loads(options)
    if where.isdigit():
        path = bywash.Path.over(int(where), **options)
    else:
        path = bywash.Path.connect(where, **options)
    globals()[role](path, *(json.loads(argument) for argument in arguments))


if __name__ == "__main__":
    main()
