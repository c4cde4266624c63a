"""A file goes over the network, compressed, to another process that keeps it: what nc and zstd do in a pipeline, without
one, and with a hash at both ends that says whether all is well.

python backup.py [MIB]
"""

import multiprocessing
import os
import pathlib
import socket
import sys
import tempfile

import bywash


def keep(port, folder):
    """The other end: waits for a connection, and keeps what comes. The file has no name before it is whole."""
    sink = pathlib.Path(folder, "kept")
    flow = bywash.Flow(f"tcp-listen:127.0.0.1:{port}", sink, stages=["decompress:", "hash:sha256"], one_way=True)
    [(_, digits)] = flow.run(timeout=600).hashes
    pathlib.Path(folder, "kept.sha256").write_text(digits)


def main():
    mib = int(sys.argv[1]) if len(sys.argv) > 1 else 256
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "source")
        # Half of it can be compressed.
        with source.open("wb") as file:
            for _ in range(mib):
                file.write(os.urandom(1 << 19) + bytes(1 << 19))
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        other = multiprocessing.get_context("spawn").Process(target=keep, args=(port, folder))
        other.start()
        flow = bywash.Flow(source, f"tcp:127.0.0.1:{port}", stages=["hash:sha256", "compress:zstd"])
        report = run_when_there(flow, other)
        other.join()
        [(_, digits)] = report.hashes
        told = pathlib.Path(folder, "kept.sha256").read_text()
        print(f"{mib} MiB in {report.seconds:.2f} s, {report.rate / 1e6:.0f} MB/s, {report.cpu_seconds:.2f} s of a processor")
        print("it arrived as it was" if told == digits else f"{told} arrived, and not {digits}")
        sys.exit(told != digits)


def run_when_there(flow, other):
    """The other process needs a moment until it listens."""
    while True:
        try:
            return flow.run()
        except bywash.IoError as error:
            if error.report.bytes or not other.is_alive():
                raise


if __name__ == "__main__":
    main()
