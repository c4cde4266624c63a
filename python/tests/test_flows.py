"""Flows: what they would do, what they do, how they are watched, waited for and ended, and what goes wrong."""

import asyncio
import errno
import hashlib
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

import bywash
import bywash.aio

SIZE = 3_000_001


@pytest.fixture
def here(tmp_path):
    path = tmp_path / "here"
    path.write_bytes(os.urandom(SIZE))
    return path


@pytest.fixture
def there(tmp_path):
    return tmp_path / "there"


@pytest.fixture
def silent(tmp_path):
    """A pipe into which nobody writes."""
    path = tmp_path / "silent"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    yield path
    os.close(writer)


def test_a_copy_and_all_that_it_says(here, there):
    flow = bywash.Flow(str(here), str(there), stages=["hash:sha256"], block=64 << 10, sync=True)
    assert (flow.source, flow.stages, flow.sink) == (f"file:{here}", ("hash:sha256",), f"file:{there}")
    assert repr(flow) == f"<bywash.Flow: file:{here} -> hash:sha256 -> file:{there}>"
    running = flow.start()
    report = running.wait()
    assert there.read_bytes() == here.read_bytes()
    assert isinstance(report, bywash.Report)
    assert (report.bytes, report.whole, report.partial, report.notes) == (SIZE, True, None, ())
    assert 0 < report.cpu_seconds < 60 and 0 < report.seconds and report.rate == SIZE / report.seconds
    digits = hashlib.sha256(here.read_bytes()).hexdigest()
    assert report.hashes == (bywash.Hash("sha256", digits),)
    [piece] = report.pieces
    assert (piece.mover, piece.block, piece.bytes, piece.holes, piece.fallbacks) == ("buffer", 65536, SIZE, 0, ())
    assert (running.moved, running.total, running.over) == (SIZE, SIZE, True)
    assert repr(running).endswith(f", ended, {SIZE} bytes>")
    assert running.notices() == []
    # As often as one asks; and that it is cancelled now changes nothing.
    running.cancel()
    assert running.wait(timeout=0) == report


def test_what_it_would_do(here, there):
    flow = bywash.Flow(here, there)
    [plan] = flow.plan()
    assert isinstance(plan, bywash.Plan) and (plan.source, plan.sink) == (f"file:{here}", f"file:{there}")
    assert plan.movers and all(isinstance(choice, bywash.Choice) and choice.why for choice in plan.movers)
    assert "splice" in {choice.mover for choice in plan.movers + plan.others}
    assert plan.promises == bywash.Promises(by_value=True, ordered=True, lossless=True, durable=False)
    assert not plan.keeps_holes and plan.block >= 512
    text = flow.explain()
    assert text.startswith(f"file:{here} -> file:{there}\n  mover  {plan.movers[0].mover} ")
    assert "\n  not    " in text
    assert not there.exists()
    one, other = bywash.Flow(here, "null:", stages=("exec:cat",)).plan()
    assert one.sink == other.source == "exec:cat"
    [forced] = bywash.Flow(here, there, via="sendfile").plan()
    assert [choice.mover for choice in forced.movers] == ["sendfile"]


def test_by_reference(here):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for by, expected in (("value", True), ("reference", False)):
            [plan] = bywash.Flow(here, f"tcp:127.0.0.1:{port}", by=by, via=None if expected else "sendfile").plan()
            assert plan.promises.by_value is expected


def test_a_flow_is_started_again(here, there):
    flow = bywash.Flow(here, there, stages=["compress:zstd"])
    assert flow.run().bytes == flow.run(timeout=60).bytes == SIZE
    back = there.with_name("back")
    bywash.Flow(there, back, stages=["decompress:"]).run()
    assert back.read_bytes() == here.read_bytes()


def test_paths_are_files_whatever_their_name(tmp_path):
    strange = tmp_path / "tcp:a,b\\c"
    strange.write_bytes(b"data")
    bywash.Flow(strange, tmp_path / "null:").run()
    assert (tmp_path / "null:").read_bytes() == b"data"
    # The text of the endpoint leads there as well.
    bywash.Flow(bywash.Flow(strange, "null:").source, tmp_path / "again").run()
    assert (tmp_path / "again").read_bytes() == b"data"


def test_to_a_socket_and_through_a_program(here):
    received = hashlib.sha256()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def receive():
            with server.accept()[0] as connection:
                while piece := connection.recv(1 << 20):
                    received.update(piece)

        thread = threading.Thread(target=receive)
        thread.start()
        sink = f"tcp:127.0.0.1:{server.getsockname()[1]}"
        report = bywash.Flow(here, sink, stages=["exec:cat", "limit:1000000"]).run(timeout=60)
        thread.join(20)
    assert received.hexdigest() == hashlib.sha256(here.read_bytes()[:1_000_000]).hexdigest()
    assert len(report.pieces) == 2 and report.pieces[1].bytes == 1_000_000


def test_what_is_watched_and_cancelled(silent, there):
    running = bywash.Flow(silent, there).start()
    for limit in (0, 0.03, 0.2):
        begin = time.monotonic()
        with pytest.raises(bywash.TimedOut, match="before the timeout"):
            running.wait(timeout=limit)
        assert limit <= time.monotonic() - begin < limit + 0.5
    assert (running.moved, running.total, running.over) == (0, None, False)
    assert "running, 0 bytes" in repr(running)
    assert select.select([running], [], [], 0)[0] == []
    with open(silent, "wb", buffering=0) as writer:
        writer.write(b"data")
        limit = time.monotonic() + 10
        while running.moved < 4 and time.monotonic() < limit:
            time.sleep(0.01)
        assert running.moved == 4
        threading.Timer(0.1, running.cancel).start()
        with pytest.raises(bywash.Cancelled, match="the flow was cancelled") as caught:
            running.wait(timeout=20)
    assert select.select([running], [], [], 0)[0] == [running]
    assert caught.value.report.bytes == 4 and not caught.value.report.whole
    assert not there.exists()
    assert caught.value.report.partial.read_bytes() == b"data"
    assert isinstance(caught.value.report.partial, pathlib.Path)


def test_a_with_block(here, silent, there):
    with bywash.Flow(here, there).start() as running:
        pass
    assert running.over and there.read_bytes() == here.read_bytes()
    with pytest.raises(KeyError), bywash.Flow(silent, there).start() as running:
        raise KeyError
    assert running.over
    with bywash.Flow(silent, there).start() as running:
        running.cancel()
    with pytest.raises(bywash.DataError), bywash.Flow(here, "null:", stages=["hash:sha256,expect=" + 64 * "0"]).start():
        pass


def test_a_run_that_takes_too_long(silent):
    threads = threading.active_count()
    begin = time.monotonic()
    with pytest.raises(bywash.TimedOut):
        bywash.Flow(silent, "null:").run(timeout=0.1)
    assert time.monotonic() - begin < 2 and threading.active_count() == threads


@pytest.mark.parametrize(
    ("arguments", "options", "error", "text"),
    [
        (("tpc:x:1", "null:"), {}, bywash.OptionError, "there is no endpoint of the kind 'tpc'"),
        (("null:", "tcp:x"), {}, bywash.OptionError, "a port is missing"),
        (("zero:", "null:"), {"stages": ["hash:md5"]}, bywash.OptionError, "there is no hash 'md5'"),
        (("zero:", "null:"), {"stages": "hash:sha256"}, TypeError, "str"),
        (("zero:", "null:"), {"via": "magic"}, bywash.OptionError, "there is no mover 'magic'"),
        (("zero:", "null:"), {"via": "reflink"}, bywash.UnfitError, "reflink cannot move this flow"),
        (("zero:", "null:"), {"by": "name"}, bywash.OptionError, "by is 'name', and must be one of 'value', 'refer"),
        (("zero:", "null:"), {"block": -1}, bywash.OptionError, "block is -1, and must be a whole number"),
        (("zero:", "null:"), {"block": 1}, bywash.OptionError, "blocks of 1 B cannot be"),
        (("/nowhere/at/all", "null:"), {}, bywash.IoError, "/nowhere/at/all"),
        ((3, "null:"), {}, TypeError, "int"),
    ],
)
def test_what_cannot_be(arguments, options, error, text):
    with pytest.raises(error, match=text) as caught:
        bywash.Flow(*arguments, **options).start()
    assert not isinstance(caught.value, bywash.Error) or caught.value.report is None
    if error is bywash.IoError:
        assert caught.value.errno == errno.ENOENT
    if error in (bywash.OptionError, bywash.UnfitError):
        assert isinstance(caught.value, ValueError)


def test_what_fails_on_the_way(here, there, tmp_path):
    with pytest.raises(bywash.DataError, match="sha256") as caught:
        bywash.Flow(here, there, stages=["hash:sha256,expect=" + 64 * "0"]).run()
    assert caught.value.report.bytes == SIZE and not there.exists()
    with pytest.raises(bywash.ProgramError, match="3"):
        bywash.Flow(here, "null:", stages=["exec:cat > /dev/null; exit 3"]).run()
    with pytest.raises(bywash.IoError, match=f"{tmp_path}/nobody") as caught:
        bywash.Flow(here, f"unix:{tmp_path}/nobody").run()
    assert caught.value.errno == errno.ENOENT and caught.value.report.bytes == 0


INTERRUPTED = """
import signal, sys, bywash
signal.signal(signal.SIGINT, signal.default_int_handler)
flow = bywash.Flow(sys.argv[1], "null:")
running = flow.start()
print("waiting", flush=True)
try:
    running.wait() if sys.argv[2] == "wait" else flow.run()
except KeyboardInterrupt:
    # A wait leaves the flow as it is.
    print("interrupted", running.over, flush=True)
    running.cancel()
    try:
        running.wait(timeout=20)
    except bywash.Cancelled:
        print("cancelled")
"""


@pytest.mark.parametrize("what", ["wait", "run"])
def test_ctrl_c(silent, what):
    words = [sys.executable, "-c", INTERRUPTED, str(silent), what]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "waiting\n"
    time.sleep(0.3)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=20)[0] == "interrupted False\ncancelled\n"
    assert process.returncode == 0 and time.monotonic() - begin < 3


def test_several_threads_wait(silent):
    running = bywash.Flow(silent, "null:").start()
    seen = []

    def wait():
        try:
            running.wait(timeout=20)
        except bywash.Cancelled as error:
            seen.append(error)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    running.cancel()
    for thread in threads:
        thread.join(20)
    assert len(seen) == 3


def test_asyncio(here, there, silent):
    async def both():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.create_task(tick())
        paced = bywash.Flow(here, "null:", stages=["rate:10M"])
        one, other = await asyncio.gather(bywash.aio.run(paced), bywash.aio.run(bywash.Flow(here, there)))
        assert one.bytes == other.bytes == SIZE and there.read_bytes() == here.read_bytes()
        # A wait that is given up leaves the flow as it is, and a run that is given up ends it.
        running = bywash.Flow(silent, "null:").start()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await bywash.aio.wait(running)
        assert not running.over
        running.cancel()
        with pytest.raises(bywash.Cancelled):
            await bywash.aio.wait(running)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await bywash.aio.run(bywash.Flow(silent, "null:"))
        ticking.cancel()
        return ticks

    assert asyncio.run(both()) > 5, "the loop goes on"


FORK = """
import os, sys, bywash
running = bywash.Flow(sys.argv[1], "null:").start()
running.wait()
child = os.fork()
if child == 0:
    try:
        running.wait()
    except bywash.ForkedError:
        running.cancel()
        del running
        # A flow is a value, and can be started here.
        os._exit(0 if bywash.Flow(sys.argv[1], "null:").run().whole else 1)
    os._exit(2)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print("well")
"""


def test_fork(here):
    words = [sys.executable, "-c", FORK, str(here)]
    assert subprocess.run(words, capture_output=True, text=True, timeout=60).stdout == "well\n"


def test_nothing_leaks(here):
    def some(rounds):
        for _ in range(rounds):
            flow = bywash.Flow(here, "null:", stages=["limit:1000", "hash:blake3"])
            flow.plan()
            flow.run()

    some(20)
    descriptors = len(os.listdir("/proc/self/fd"))
    references = [sys.getrefcount(one) for one in (bywash.Report, bywash.Plan, bywash.Flow)]
    some(200)
    # The thread of the last one may not be gone yet.
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 2
    after = [sys.getrefcount(one) for one in (bywash.Report, bywash.Plan, bywash.Flow)]
    assert all(abs(now - then) < 10 for now, then in zip(after, references, strict=True))


def test_a_rate_without_loss_is_for_datagrams(here, there):
    with pytest.raises(bywash.OptionError, match="a rate without loss"):
        bywash.Flow(str(here), str(there), finds_rate=True).run()


def test_what_became_of_datagrams_is_told(here, there):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # No more than the receiver's buffer takes if nobody reads it for a while.
    stages = ["limit:100K"]
    receiving = bywash.Flow(f"udp-listen:127.0.0.1:{port},sequenced", str(there)).start()
    wait_for_udp(port)
    report = bywash.Flow(str(here), f"udp:127.0.0.1:{port},sequenced", stages=stages).run(timeout=20)
    assert receiving.wait(timeout=20).whole
    assert there.read_bytes() == here.read_bytes()[: 100 << 10]
    [account] = report.pieces[0].datagrams
    assert account["packets_sent"] > 0 and account["lost"] == 0


def wait_for_udp(port):
    wanted = f":{port:04X} "
    end = time.monotonic() + 20
    while wanted not in pathlib.Path("/proc/net/udp").read_text():
        assert time.monotonic() < end
        time.sleep(0.01)
