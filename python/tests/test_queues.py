"""Queues of a device server: many requests in flight, by looking, waiting, event loop and callback."""

import asyncio
import gc
import pathlib
import select
import sys
import threading
import time
import weakref

import numpy as np
import pytest

import bywash
import bywash.aio
import bywash.serve

BLOCK = 4096
MANY = 100


def pattern(nbytes, seed):
    return bytes((at * 31 + seed * 7) % 256 for at in range(nbytes))


@pytest.fixture(params=["fast", "slow"])
def opened(request, device_server):
    """A queue of 32 requests, and a volume of it: mapped, and through the channel."""
    with device_server.connect(depth=32, arena_bytes=1 << 20).queue() as queue:
        yield queue, queue.open(request.param, "read-write")


def drain(queue):
    done = []
    while queue.in_flight:
        done += queue.reap_many()
    return done


def test_many_at_a_time(opened):
    queue, volume = opened
    assert queue.depth == 32 and queue.in_flight == 0
    assert queue.length(volume) >= 1 << 20 and BLOCK % queue.block(volume) == 0
    with pytest.raises(bywash.IdleError, match="no request is in flight"):
        queue.reap()
    assert queue.try_reap() is None
    done, number = [], 0
    while len(done) < MANY:
        try:
            while number < MANY:
                queue.write(volume, number * BLOCK, pattern(BLOCK, number), user_data=("write", number))
                number += 1
        except bywash.NoRoomError:
            assert queue.in_flight == queue.depth
        some = queue.reap_many(5)
        assert 1 <= len(some) <= 5
        done += some
    assert sorted(one.user_data for one in done) == [("write", number) for number in range(MANY)]
    assert all(one.error is None and one.data is None and one.result() is None for one in done)
    queue.flush(volume, "flush")
    assert queue.reap(timeout=20).user_data == "flush"
    for first in range(0, MANY, 20):
        for number in range(first, first + 20):
            queue.read(volume, number * BLOCK, BLOCK, number)
        queue.wait(20, timeout=20)
        done = queue.reap_many()
        assert len(done) == 20
        for one in done:
            assert one.result() == pattern(BLOCK, one.user_data)
    assert queue.reap_many(0) == []
    queue.wait(5)


def test_into_the_programs_buffers(opened):
    queue, volume = opened
    queue.write(volume, 0, np.arange(BLOCK // 4, dtype=np.float64), durable=True)
    assert queue.reap().error is None
    array = np.zeros((4, BLOCK // 16))
    queue.read_into(volume, 0, array, "array")
    room = bytearray(BLOCK)
    queue.read_into(volume, BLOCK, room, "room")
    # It is held until then.
    with pytest.raises(BufferError):
        room.extend(b"more")
    done = {one.user_data: one for one in drain(queue)}
    assert done["array"].result() is array and done["room"].data is room
    assert (array.ravel() == np.arange(BLOCK // 4)).all()
    assert room == array.tobytes()[BLOCK:]
    room.extend(b"more")
    with pytest.raises(BufferError, match="cannot be written"):
        queue.read_into(volume, 0, bytes(BLOCK))
    assert queue.in_flight == 0


def test_all_kinds(opened):
    queue, volume = opened
    queue.write(volume, 0, pattern(4 * BLOCK, 1))
    drain(queue)
    queue.write_zeroes(volume, 0, BLOCK, durable=True)
    queue.discard(volume, BLOCK, BLOCK)
    assert all(one.error is None for one in drain(queue))
    block = queue.block(volume)
    queue.compare_and_write(volume, 0, bytes(block), pattern(block, 2), "first")
    assert queue.reap().result() is None
    queue.compare_and_write(volume, 0, bytes(block), pattern(block, 3), "second")
    done = queue.reap()
    assert isinstance(done.error, bywash.DiffersError) and done.user_data == "second"
    assert "second" in repr(done) and "DiffersError" in repr(done)
    with pytest.raises(bywash.DiffersError, match="nothing was written"):
        done.result()
    queue.read(volume, 0, block)
    assert queue.reap().result() == pattern(block, 2)


def test_buffers_that_are_not_copied(opened):
    queue, volume = opened
    buffer = queue.alloc(2 * BLOCK)
    assert len(buffer) == 2 * BLOCK and buffer.capacity >= 2 * BLOCK
    assert buffer.copy_from(pattern(2 * BLOCK, 3)) == 2 * BLOCK
    queue.write(volume, 0, buffer, user_data=1)
    for what in (lambda: len(buffer), buffer.tobytes, buffer.free, lambda: queue.write(volume, 0, buffer)):
        with pytest.raises(ValueError, match="in flight"):
            what()
    done = queue.reap()
    assert done.result() is buffer and queue.in_flight == 0
    buffer.copy_from(bytes(2 * BLOCK))
    buffer.resize(BLOCK)
    queue.read_into(volume, BLOCK, buffer)
    assert queue.reap().data is buffer
    assert buffer.tobytes() == bytes(buffer) == pattern(2 * BLOCK, 3)[BLOCK:]
    room = np.zeros(10, np.uint8)
    assert buffer.copy_to(room, BLOCK - 5) == 5
    assert bytes(room) == pattern(2 * BLOCK, 3)[-5:] + bytes(5)
    with pytest.raises(ValueError, match="do not fit"):
        buffer.copy_from(bytes(10), BLOCK - 5)
    with pytest.raises(bywash.TooLargeError):
        buffer.resize(1 << 30)
    # The server is not trusted.
    with pytest.raises(bywash.NotMappedError):
        memoryview(buffer)
    # What is refused stays.
    with pytest.raises(bywash.RangeError):
        queue.write(volume, 1, buffer)
    assert buffer.tobytes() == pattern(2 * BLOCK, 3)[BLOCK:]
    with pytest.raises(bywash.TooLargeError):
        queue.alloc(1 << 30)
    taken = []
    with pytest.raises(bywash.NoRoomError, match=r"this program holds \d+ in \d+ buffers"):
        while len(taken) < 100:
            taken.append(queue.alloc(200_000))
    assert taken
    buffer.free()
    buffer.free()
    with pytest.raises(ValueError, match="was freed"):
        len(buffer)


def test_a_trusted_servers_buffers_are_looked_at(device_server):
    queue = device_server.connect(trusted=True, choice="channel").queue()
    volume = queue.open("fast", "read-write")
    buffer = queue.alloc(BLOCK)
    array = np.frombuffer(buffer, np.uint8)
    array[:] = 7
    for what in (lambda: queue.write(volume, 0, buffer), buffer.free, lambda: buffer.resize(1)):
        with pytest.raises(BufferError, match=r"looked at through 1 view\(s\)"):
            what()
    del array
    queue.write(volume, 0, buffer)
    assert queue.reap().data is buffer
    with memoryview(buffer) as view:
        assert view.tobytes() == bytes([7]) * BLOCK
    # A view outlives the queue.
    view = memoryview(buffer)
    queue.close()
    del buffer
    gc.collect()
    assert view[BLOCK - 1] == 7


def test_several_volumes_by_one_request(device_server):
    for choice in ("automatic", "channel"):
        queue = device_server.connect(choice=choice).queue()
        fast, slow = queue.open("fast", "read-write"), queue.open("slow", "read-write")
        assert fast != slow and len({fast, slow}) == 2
        pieces = [(fast, 0, pattern(BLOCK, 4)), (slow, BLOCK, pattern(2 * BLOCK, 5))]
        queue.write_many(pieces, durable=True, user_data=8)
        assert queue.reap().user_data == 8
        queue.read_many([(slow, BLOCK, 2 * BLOCK), (fast, 0, BLOCK)])
        assert queue.reap().result() == pattern(2 * BLOCK, 5) + pattern(BLOCK, 4)
        with pytest.raises(bywash.RangeError, match="not all within"):
            queue.read_many([(slow, 0, 1 << 60)])
        with pytest.raises(bywash.RangeError, match="not all within"):
            queue.read(slow, 0, 1 << 60)
        with pytest.raises(bywash.PiecesError):
            queue.write_many([])
        assert queue.in_flight == 0


def test_volumes_of_a_queue(device_server):
    client = device_server.connect()
    queue, other = client.queue(), client.queue()
    with pytest.raises(bywash.MissingError):
        queue.open("none")
    volume = queue.open("fast")
    assert queue.path(volume) == "mapped"
    with pytest.raises(bywash.UnfitError, match="belongs to another queue"):
        other.read(volume, 0, BLOCK)
    with pytest.raises(bywash.DeniedError):
        queue.write(volume, 0, bytes(BLOCK))
    queue.read(volume, 0, BLOCK)
    with pytest.raises(bywash.BusyError, match="reap them first"):
        queue.close_volume(volume)
    queue.reap()
    queue.close_volume(volume)
    with pytest.raises(bywash.UnfitError):
        queue.read(volume, 0, BLOCK)
    numbers = [one["client"] for one in client.status()["clients"]]
    assert {client.number, queue.number, other.number} <= set(numbers)
    other.close()
    assert other.closed and repr(other) == "<bywash.serve.Queue: closed>"
    with pytest.raises(ValueError, match="the queue was closed"):
        other.reap()
    with pytest.raises(ValueError, match="the queue was closed"):
        other.open("fast")


def test_a_queue_that_is_closed_lets_go(device_server):
    class Token:
        pass

    queue = device_server.connect().queue()
    volume = queue.open("late")
    token, room = Token(), bytearray(BLOCK)
    gone = weakref.ref(token)
    queue.read_into(volume, 0, room, token)
    buffer = queue.alloc(BLOCK)
    queue.read_into(volume, 0, buffer)
    del token
    begin = time.monotonic()
    queue.close()
    assert time.monotonic() - begin < 1
    gc.collect()
    assert gone() is None
    room.extend(b"it is the program's again")
    with pytest.raises(ValueError, match="was lost"):
        len(buffer)


def test_the_time_is_limited(device_server):
    queue = device_server.connect(limit=0.3).queue()
    queue.read(queue.open("late"), 0, BLOCK)
    for limit, timeout in ((0.1, 0.1), (0.3, None)):
        begin = time.monotonic()
        with pytest.raises(bywash.TimedOut, match="before the timeout"):
            queue.reap(timeout)
        assert limit <= time.monotonic() - begin < limit + 1
    # It comes after all.
    assert queue.reap(20).result() == bytes(BLOCK)


def test_an_event_loop(opened):
    queue, volume = opened
    for number in range(20):
        queue.read(volume, number * BLOCK, BLOCK, number)
    seen = []
    while len(seen) < 20:
        done = queue.try_reap()
        if done is not None:
            seen.append(done.user_data)
        elif not queue.arm():
            readable, _, _ = select.select([queue], [], [], 20)
            assert readable == [queue]
    assert sorted(seen) == list(range(20))


def test_asyncio(device_server):
    queue = device_server.connect().queue()
    late, slow = queue.open("late"), queue.open("slow")

    async def main():
        queue.read(slow, 0, BLOCK, "slow")
        queue.read(late, 0, BLOCK, "late")
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.01)

        ticking = asyncio.create_task(tick())
        [first] = await bywash.aio.reap(queue)
        assert first.user_data == "slow"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await bywash.aio.reap(queue)
        [second] = await bywash.aio.reap(queue)
        assert second.user_data == "late" and second.result() == bytes(BLOCK)
        ticking.cancel()
        assert ticks > 20, "the loop goes on"
        with pytest.raises(bywash.IdleError):
            await bywash.aio.reap(queue)

    asyncio.run(main())


def test_callbacks(opened):
    queue, volume = opened
    queue.write(volume, 0, pattern(MANY * BLOCK, 0))
    drain(queue)
    seen, over = {}, threading.Event()

    def called(done):
        seen[done.user_data] = done.result()
        # A callback may submit.
        if done.user_data + 8 < MANY:
            queue.read(volume, (done.user_data + 8) * BLOCK, BLOCK, done.user_data + 8)
        if len(seen) == MANY:
            over.set()

    with pytest.raises(bywash.BusyError, match="has no callback"):
        queue.dispatch_stop()
    queue.dispatch(called)
    with pytest.raises(bywash.BusyError, match="callbacks reap"):
        queue.reap()
    with pytest.raises(bywash.BusyError, match="callbacks reap"):
        queue.dispatch(called)
    for number in range(8):
        queue.read(volume, number * BLOCK, BLOCK, number)
    assert over.wait(20)
    queue.dispatch_stop()
    whole = pattern(MANY * BLOCK, 0)
    assert seen == {number: whole[number * BLOCK : (number + 1) * BLOCK] for number in range(MANY)}
    queue.read(volume, 0, BLOCK, "again")
    assert queue.reap().user_data == "again"


def test_what_a_callback_raises(opened, monkeypatch):
    queue, volume = opened
    raised, over = [], threading.Event()

    def hook(unraisable):
        raised.append((type(unraisable.exc_value), str(unraisable.exc_value)))
        if len(raised) == 2:
            over.set()

    monkeypatch.setattr(sys, "unraisablehook", hook)

    def called(done):
        if done.user_data == "stop":
            queue.dispatch_stop()
        raise RuntimeError("mine")

    queue.dispatch(called)
    queue.read(volume, 0, BLOCK)
    queue.read(volume, 0, BLOCK, "stop")
    assert over.wait(20)
    queue.dispatch_stop()
    assert (RuntimeError, "mine") in raised
    assert any(kind is bywash.BusyError and "wait for its own end" in text for kind, text in raised)


def test_a_callback_closes_its_queue(opened):
    """Nothing is called after that, even if it was done by then."""
    queue, volume = opened
    over, called = threading.Event(), []

    def call(done):
        called.append(done)
        queue.close()
        over.set()

    for number in range(20):
        queue.read(volume, number * BLOCK, BLOCK)
    queue.dispatch(call)
    assert over.wait(20) and queue.closed
    time.sleep(0.2)
    assert len(called) == 1


def test_a_queue_is_closed_while_its_callbacks_are_stopped(opened):
    queue, volume = opened
    entered, go_on = threading.Event(), threading.Event()
    rooms = [bytearray(BLOCK) for _ in range(8)]

    def called(done):
        entered.set()
        go_on.wait(20)

    queue.dispatch(called)
    for room in rooms:
        queue.read_into(volume, 0, room)
    assert entered.wait(20)
    stopper = threading.Thread(target=queue.dispatch_stop)
    stopper.start()
    while True:
        try:
            queue.flush(volume)
        except bywash.BusyError as busy:
            assert "another thread waits" in str(busy)
            break
        except bywash.NoRoomError:
            time.sleep(0.01)
    queue.close()
    assert queue.closed and stopper.is_alive()
    go_on.set()
    stopper.join(20)
    assert not stopper.is_alive()
    for room in rooms:
        room.extend(b"it is the program's again")


def test_callbacks_hear_of_the_end(device_server):
    queue = device_server.connect().queue()
    late = queue.open("late")
    done, over = [], []
    ended = threading.Event()

    def on_end(error):
        over.append(error)
        ended.set()

    queue.dispatch(done.append, on_end)
    queue.read(late, 0, BLOCK, "late")
    device_server.kill()
    assert ended.wait(20)
    [completion], [error] = done, over
    assert isinstance(completion.error, bywash.ServerGone) and isinstance(error, bywash.ServerGone)
    with pytest.raises(bywash.ServerGone):
        queue.read(late, 0, BLOCK)
    queue.close()


def test_a_dropped_queue_ends_its_callbacks(device_server):
    """The thread of the callbacks wants the interpreter, which who drops the queue has."""
    client = device_server.connect()
    for _ in range(20):
        queue = client.queue()
        volume = queue.open("slow")
        queue.dispatch(lambda done: sum(range(10_000)))
        for number in range(20):
            queue.read(volume, number * BLOCK, BLOCK)
        del queue
        gc.collect()
    threads = [task.read_text().strip() for task in pathlib.Path("/proc/self/task").glob("*/comm")]
    assert "bywash-dispatch" not in threads


def test_a_queue_connects_again(device_server):
    queue = device_server.connect(reconnect=20).queue()
    volume = queue.open("slow", "read-write")
    queue.write(volume, 0, pattern(BLOCK, 6), durable=True)
    assert queue.reap().error is None
    device_server.stop()
    starter = threading.Timer(0.3, device_server.start)
    starter.start()
    queue.read(volume, 0, BLOCK)
    assert queue.reap(timeout=30).result() == pattern(BLOCK, 6)
    assert queue.reconnects == 1
    starter.join()
