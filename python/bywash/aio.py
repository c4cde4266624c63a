"""Receiving, reaping, and waiting for flows, in asyncio: the task waits, and the loop goes on.

To allocate and to ship seldom wait; where they may, `asyncio.to_thread(path.alloc, nbytes)` keeps the loop going.
"""

import asyncio
from collections.abc import AsyncIterator

from ._bywash import Completion, Flow, Message, Path, Queue, Running
from .errors import Closed, IdleError
from .records import Report

__all__ = ["messages", "reap", "receive", "run", "wait"]


async def receive(path: Path) -> Message:
    """Receives the next message. One task of a loop at a time can do that on a path.

    To limit the time use `asyncio.timeout`; nothing is lost then.
    """
    while (message := path.try_receive()) is None:
        if not path.arm():
            await _readable(path.fileno())
    return message


async def messages(path: Path) -> AsyncIterator[Message]:
    """Receives until the peer closes."""
    try:
        while True:
            yield await receive(path)
    except Closed:
        return


async def reap(queue: Queue) -> list[Completion]:
    """Waits until requests of a queue are done; answers all that are. One task of a loop at a time can do that.

    There must be some under way (`IdleError`). To limit the time use `asyncio.timeout`; nothing is lost then.
    """
    while (first := queue.try_reap()) is None:
        if not queue.under_way:
            raise IdleError("nothing is under way; submit something first")
        if not queue.arm():
            await _readable(queue.fileno())
    done = [first]
    while len(done) < queue.depth and queue.under_way and (next_one := queue.try_reap()) is not None:
        done.append(next_one)
    return done


async def wait(running: Running) -> Report:
    """Waits until a flow has ended, and tells what became of it. One task of a loop at a time can wait for a flow.

    A task that is cancelled, by `asyncio.timeout` say, leaves the flow as it is: it goes on.
    """
    if not running.over:
        await _readable(running.fileno())
    return running.wait()


async def run(flow: Flow) -> Report:
    """Starts a flow and waits for its end. If the task is cancelled, so is the flow."""
    running = flow.start()
    try:
        return await wait(running)
    except asyncio.CancelledError:
        running.cancel()
        raise


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
