"""Waiting: limits, signals, threads, event loops, and peers that end."""

import asyncio
import os
import select
import signal
import subprocess
import sys
import threading
import time

import pytest

import bywash
import bywash.aio


@pytest.mark.parametrize("wait", ["adaptive", "spin", "sleep"])
def test_limits(peers, wait):
    _, path = peers.start("hold", 0, wait=wait)
    for limit in (0, 0.03, 0.2):
        begin = time.monotonic()
        with pytest.raises(TimeoutError, match="before the timeout") as caught:
            path.receive(timeout=limit)
        assert isinstance(caught.value, bywash.TimedOut)
        assert limit <= time.monotonic() - begin < limit + 0.5
    assert path.try_receive() is None
    for limit in (-1, float("nan")):
        with pytest.raises(ValueError, match="must be a number of seconds from 0 on"):
            path.receive(timeout=limit)
    path.ship(path.alloc(1, timeout=float("inf")), timeout=1e300)
    path.close()


def test_a_message_ends_the_wait(peers):
    _, path = peers.start("late", 0.3)
    begin = time.monotonic()
    assert path.receive(timeout=20).nbytes == 1
    assert 0.1 < time.monotonic() - begin < 10


def test_a_dead_peer(peers):
    process, path = peers.start("die", arena_bytes=1 << 20)
    mine = path.alloc(1000)
    path.ship(path.alloc(1))
    # What it shipped before arrives.
    assert path.receive(timeout=20).nbytes == 8
    begin = time.monotonic()
    with pytest.raises(bywash.PeerDied, match=rf"the peer \(process {process.pid}\) died") as caught:
        path.receive(timeout=20)
    assert time.monotonic() - begin < 5
    assert caught.value.pid == process.pid
    with pytest.raises((bywash.PeerDied, bywash.Closed)):
        path.ship(mine)
    mine.copy_from(b"still mine")
    assert bytes(mine)[:10] == b"still mine"


def test_a_dead_peer_is_seen_by_an_event_loop(peers):
    process, path = peers.start("mute")
    assert path.try_receive() is None and not path.arm()
    process.kill()
    assert select.select([path], [], [], 20)[0] == [path]

    async def wait():
        async with asyncio.timeout(20):
            await bywash.aio.receive(path)

    with pytest.raises(bywash.PeerDied):
        asyncio.run(wait())


def test_selectors(peers):
    _, path = peers.start("late", 0.2)
    received = None
    while received is None:
        received = path.try_receive()
        if received is None and not path.arm():
            assert select.select([path], [], [], 20)[0] == [path]
    assert received.nbytes == 1


def test_asyncio(peers):
    _, quick = peers.start("send", 500, 3000)
    _, slow = peers.start("late", 0.3)

    async def collect():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.create_task(tick())
        first = asyncio.create_task(bywash.aio.receive(slow))
        numbers = [message.tobytes()[0] async for message in bywash.aio.messages(quick)]
        assert (await first).nbytes == 1
        ticking.cancel()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await bywash.aio.receive(slow)
        return numbers, ticks

    numbers, ticks = asyncio.run(collect())
    assert numbers == [number % 256 for number in range(500)]
    assert ticks > 5, "the loop goes on"


@pytest.mark.parametrize("what", ["receive", "alloc", "ship", "over", "accept"])
def test_ctrl_c(peers, what):
    process, path = peers.start("wait_for_interrupt", what, arena_bytes=4 << 20)
    path.receive(timeout=20)
    time.sleep(0.5)
    sent = time.time()
    process.send_signal(signal.SIGINT)
    words = process.stdout.readline().split()
    assert words[0] == "interrupted"
    assert float(words[1]) - sent < 0.5, "some 50 ms where the machine has time"


def test_other_threads_run_meanwhile(pair):
    one, other = pair()
    done = threading.Event()

    def wait():
        other.receive()
        done.set()

    thread = threading.Thread(target=wait)
    thread.start()
    # Were the waiting thread to keep others from running, this would not be reached.
    time.sleep(0.1)
    assert not done.is_set()
    one.ship(one.alloc(1))
    thread.join(10)
    assert done.is_set()


def test_closing_ends_a_wait(pair):
    one, _ = pair()
    seen = []

    def wait():
        try:
            one.receive()
        except ValueError as error:
            seen.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)
    one.close()
    thread.join(10)
    assert seen == ["the path was closed; make another one"]


def test_closing_ends_a_ship_and_leaves_the_container(pair):
    one, _ = pair(depth=1, wait="sleep")
    with pytest.raises(bywash.TimedOut):
        while True:
            one.ship(one.alloc(1), timeout=0.01)
    container = one.alloc(5000)
    closing = threading.Timer(0.2, one.close)
    closing.start()
    with pytest.raises(ValueError, match="the path was closed"):
        one.ship(container)
    closing.join()
    assert container.copy_from(b"mine") == 4


def test_several_threads_ship_and_one_receives(pair):
    one, other = pair(arena_bytes=1 << 20)
    each = 2000

    def ship(number):
        for _ in range(each):
            container = one.alloc(500)
            container.copy_from(bytes([number]) * 500)
            one.ship(container)

    threads = [threading.Thread(target=ship, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    counts = [0] * 4
    for _ in range(4 * each):
        data = other.receive(timeout=20).tobytes()
        assert data == data[:1] * 500
        counts[data[0]] += 1
    for thread in threads:
        thread.join()
    assert counts == [each] * 4


def test_one_container_and_two_threads(pair):
    """Of two threads that ship the same container one succeeds."""
    one, other = pair()
    outcomes = []

    def ship(container, barrier):
        barrier.wait()
        try:
            one.ship(container)
            outcomes.append("shipped")
        except ValueError:
            outcomes.append("refused")

    for _ in range(200):
        barrier = threading.Barrier(2)
        container = one.alloc(500)
        threads = [threading.Thread(target=ship, args=(container, barrier)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert other.receive(timeout=20).nbytes == 500
    assert sorted(outcomes) == ["refused"] * 200 + ["shipped"] * 200
    assert other.try_receive() is None


FORK = """
import os, sys, bywash
path = bywash.Path.over(int(sys.argv[1]), class_=sys.argv[2])
container = path.alloc(5000)
container.copy_from(b"parent")
[received] = path.receive()
child = os.fork()
if child == 0:
    refused = 0
    uses = [path.receive, path.try_receive, path.arm, lambda: path.alloc(5000), lambda: path.alloc(1),
            lambda: path.ship(container), lambda: memoryview(container), lambda: container.copy_from(b"child"),
            lambda: path.ship(received), lambda: bytes(received), lambda: memoryview(received)]
    for use in uses:
        try:
            use()
        except bywash.ForkedError as error:
            refused += "forked off" in str(error)
    container.free()
    path.close()
    del container, received, path, uses
    os._exit(0 if refused == 11 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert bytes(container)[:6] == b"parent"
path.ship(container)
path.ship(received)
assert [path.receive().nbytes for _ in range(2)] == [5000, 700]
print("well")
"""


@pytest.mark.parametrize("class_", ["checked", "trusted", "sealed"])
def test_fork(class_):
    """The path stays the parent's: the child is told so, and what it drops changes nothing."""
    here, there = bywash.socket_pair()
    words = [sys.executable, "-c", FORK, str(there.fileno()), class_]
    process = subprocess.Popen(words, pass_fds=[there.fileno()], stdout=subprocess.PIPE, text=True)
    there.close()
    with bywash.Path.over(here, class_=class_) as path:
        path.ship(path.alloc(700))
        for _ in range(2):
            path.ship(path.receive(timeout=20))
        assert process.communicate(timeout=20)[0] == "well\n"
    assert process.returncode == 0


def test_nothing_leaks(pair):
    """Memory, descriptors and references stay what they are over 100000 messages, and over failures."""
    one, other = pair(class_="trusted", arena_bytes=1 << 20)
    small, large = b"s" * 50, b"l" * 5000

    def some(rounds):
        for number in range(rounds):
            container = one.alloc(5000 if number % 2 else 50)
            container.copy_from(large if number % 2 else small)
            view = memoryview(container)
            try:
                one.ship(container)
            except BufferError:
                view.release()
            one.ship(container)
            [piece] = other.receive()
            assert memoryview(piece)[0] == piece.tobytes()[0]
            if number % 3 == 0:
                other.ship(piece)
                one.receive()

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    some(5000)
    before, descriptors = resident(), len(os.listdir("/proc/self/fd"))
    counts = [sys.getrefcount(thing) for thing in (one, other, bywash.Message, bywash.Received, None.__class__)]
    some(100_000)
    assert resident() - before < 2 << 20
    assert len(os.listdir("/proc/self/fd")) == descriptors
    after = [sys.getrefcount(thing) for thing in (one, other, bywash.Message, bywash.Received, None.__class__)]
    assert all(abs(now - then) < 10 for now, then in zip(after, counts, strict=True)), (counts, after)


def test_paths_do_not_leak(pair):
    def some(rounds):
        for _ in range(rounds):
            one, other = pair(class_="sealed")
            one.ship(one.alloc(100))
            view = memoryview(other.receive()[0])
            one.close()
            other.close()
            view.release()

    some(5)
    descriptors = len(os.listdir("/proc/self/fd"))
    some(50)
    assert len(os.listdir("/proc/self/fd")) <= descriptors
