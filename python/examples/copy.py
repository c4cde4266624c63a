"""Copies a file, shows how far it is, and tells its hash. What is copied to may be any endpoint: another file, a socket
("tcp:example.org:9000"), a device.

python copy.py FROM TO [STAGE]...
"""

import sys

import bywash


def progress(running):
    share = f" {running.moved / running.total:.0%}" if running.total else ""
    print(f"\r{running.moved / 2**20:.1f} MiB{share}", end="", file=sys.stderr)


def main():
    source, sink, *stages = sys.argv[1:]
    flow = bywash.Flow(source, sink, stages=[*stages, "hash:blake3"])
    # Which way the bytes will go on this machine, and why no other.
    print(flow.explain(), end="")
    # Should something be raised in the block, Ctrl-C say, the flow is cancelled, and leaves no file that looks whole.
    with flow.start() as running:
        while not running.over:
            try:
                running.wait(timeout=0.1)
            except bywash.TimedOut:
                progress(running)
        progress(running)
        print(file=sys.stderr)
        report = running.wait()
    print(f"{report.bytes} bytes in {report.seconds:.3f} s, {report.cpu_seconds:.3f} s of a processor")
    for algorithm, digits in report.hashes:
        print(algorithm, digits)


if __name__ == "__main__":
    main()
