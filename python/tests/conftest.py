"""A peer in another process, and the path to it; a device server; a server to plan with."""

import faulthandler
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading

import pytest

import bywash
import bywash.plan
import bywash.serve

GUIDE = pathlib.Path(__file__).parents[2] / "docs/guide/server.toml"
PEERS = pathlib.Path(__file__).with_name("peers.py")
LIMIT = 30
ROOT = pathlib.Path(__file__).parents[2]
# `make python` builds it and says where it is.
COMMAND = os.environ.get("BYWASH_COMMAND", ROOT / "target/debug/bywash")


STDERR = pytest.StashKey()


def pytest_configure(config):
    config.stash[STDERR] = open(os.dup(2), "w")
    config.addinivalue_line("markers", "simulates: simulates for longer than other tests")


@pytest.fixture(autouse=True, scope="session")
def ctrl_c():
    """Ctrl-C is heard, also where a shell runs the tests in the background and has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def watchdog(request):
    """A test that hangs ends the run, and shows where. One marked `simulates` may take as long on a busy machine."""
    limit = 20 * LIMIT if request.node.get_closest_marker("simulates") else 4 * LIMIT
    # Pytest has standard error for itself while a test runs.
    faulthandler.dump_traceback_later(limit, exit=True, file=request.config.stash[STDERR])
    yield
    faulthandler.cancel_dump_traceback_later()


class Peers:
    """Starts peers; at the end all of them are looked after."""

    def __init__(self):
        self.started = []
        self.paths = []

    def start(self, role, *arguments, theirs=None, where=None, **options):
        """A process that plays a role of peers.py, and the path to it; `theirs` are its options, if others."""
        here = None
        if where is None:
            here, there = bywash.socket_pair()
        words = [sys.executable, str(PEERS), role, where or str(there.fileno())]
        words += [json.dumps(options if theirs is None else theirs), *(json.dumps(word) for word in arguments)]
        inherited = [] if where else [there.fileno()]
        process = subprocess.Popen(words, pass_fds=inherited, stdout=subprocess.PIPE, text=True)
        self.started.append(process)
        if where:
            return process, None
        there.close()
        path = bywash.Path.over(here, **options)
        self.paths.append(path)
        return process, path


@pytest.fixture
def built():
    """The command `bywash` under test."""
    return COMMAND


@pytest.fixture
def peers():
    peers = Peers()
    yield peers
    for path in peers.paths:
        path.close()
    for process in peers.started:
        try:
            process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            process.stdout.close()


@pytest.fixture
def pair():
    """Makes both ends in this process: each end waits for the other, so in threads."""
    made = []

    def make(theirs=None, **options):
        here, there = bywash.socket_pair()
        ends = [None, None]

        def one():
            ends[1] = bywash.Path.over(there, **(options if theirs is None else theirs))

        other = threading.Thread(target=one)
        other.start()
        ends[0] = bywash.Path.over(here, **options)
        other.join()
        made.extend(ends)
        return ends

    yield make
    for path in made:
        path.close()


class DeviceServer:
    """A device server with volumes of 1 MiB: `fast` of memory, `slow` of a file, `late` of memory that takes 2 s."""

    def __init__(self, folder):
        self.folder = folder
        self.socket = folder / "socket"
        self.process = None
        self.start()
        with bywash.serve.Client.connect(self.socket) as client:
            for name in ("fast", "slow", "late"):
                client.create(name, f"{name}-device", 1 << 20)

    def start(self):
        slow = f"slow-device=file:{self.folder}/disk,size=16M"
        devices = ["fast-device=mem:16M", slow, "late-device=mem:4M,latency=2000ms"]
        words = [str(COMMAND), "serve", "--socket", str(self.socket), "--policy", str(self.folder / "policy")]
        words += [word for device in devices for word in ("--device", device)]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if line.startswith("serving at"):
                return
        raise AssertionError(f"{words} ended with {self.process.wait()}")

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def stop(self):
        """Orderly, so that it waits for its slowest device."""
        self.process.terminate()
        try:
            self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            self.process.stdout.close()

    def connect(self, **options):
        return bywash.serve.Client.connect(self.socket, **options)


@pytest.fixture
def device_server(tmp_path):
    server = DeviceServer(tmp_path)
    yield server
    server.kill()


@pytest.fixture(scope="session")
def guide():
    """The guide's server, which is the paper's, as text."""
    return GUIDE.read_text()


@pytest.fixture(scope="session")
def server():
    """The same, read."""
    return bywash.plan.Description.from_file(GUIDE)
