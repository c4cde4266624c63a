"""A file goes through a socket, compressed, to another process that keeps it: what nc and zstd do in a pipeline, without
one, and with a hash at both ends that says whether all is well.

Both processes are on this machine and meet at a name. Between two machines the ends are "tcp-listen::9000" there and
"tcp:THERE:9000" here, and the rest stays as it is.

python backup.py [MIB]
"""

import multiprocessing
import os
import pathlib
import sys
import tempfile
import time

import bywash


def keep(folder):
    """The other end: waits for a connection, and keeps what comes. The file has no name before it is whole."""
    flow = bywash.Flow(f"unix-listen:{folder}/socket", f"{folder}/kept", stages=["decompress:", "hash:sha256"])
    [(_, digits)] = flow.run(timeout=600).hashes
    pathlib.Path(folder, "kept.sha256").write_text(digits)


def send(folder, other):
    flow = bywash.Flow(f"{folder}/source", f"unix:{folder}/socket", stages=["hash:sha256", "compress:zstd"])
    while True:
        try:
            return flow.run()
        except bywash.IoError as error:
            # The other process needs a moment until it listens.
            if error.report is None or error.report.bytes or not other.is_alive():
                raise
            time.sleep(0.02)


def main():
    mib = int(sys.argv[1]) if len(sys.argv) > 1 else 256
    with tempfile.TemporaryDirectory() as folder:
        # Half of it can be compressed.
        with pathlib.Path(folder, "source").open("wb") as file:
            for _ in range(mib):
                file.write(os.urandom(1 << 19) + bytes(1 << 19))
        other = multiprocessing.get_context("spawn").Process(target=keep, args=(folder,))
        other.start()
        report = send(folder, other)
        other.join()
        [(_, digits)] = report.hashes
        told = pathlib.Path(folder, "kept.sha256").read_text()
    print(f"{mib} MiB in {report.seconds:.2f} s, {report.rate / 1e6:.0f} MB/s, {report.cpu_seconds:.2f} s of a processor")
    print("it arrived as it was" if told == digits else f"{told} arrived, and not {digits}")
    sys.exit(told != digits)


if __name__ == "__main__":
    main()
