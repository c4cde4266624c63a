"""Receiving, reaping, and waiting for flows, in asyncio: the task waits while the event loop runs on.

Allocating and shipping seldom wait; where they may, `asyncio.to_thread(path.alloc, nbytes)` keeps the loop
running.
"""

import asyncio
from collections.abc import AsyncIterator

from ._bywash import Completion, Flow, Message, Path, Queue, Running
from .errors import Closed, IdleError
from .records import Report

__all__ = ["messages", "reap", "receive", "run", "wait"]


async def receive(path: Path) -> Message:
    """Receives the next message. Only one task of a loop at a time may receive on a path.

    Use `asyncio.timeout` for a timeout; no message is lost then.
    """
    while (message := path.try_receive()) is None:
        if not path.arm():
            await _readable(path.fileno())
    return message


async def messages(path: Path) -> AsyncIterator[Message]:
    """Yields the messages of a path until the peer closes."""
    try:
        while True:
            yield await receive(path)
    except Closed:
        return


async def reap(queue: Queue) -> list[Completion]:
    """Waits until requests of a queue are complete, and returns all completions. Only one task of a loop at a
    time may reap a queue.

    Raises `IdleError` if no request is in flight. Use `asyncio.timeout` for a timeout; no completion is lost
    then.
    """
    while (first := queue.try_reap()) is None:
        if not queue.in_flight:
            raise IdleError("no request is in flight; submit one first")
        if not queue.arm():
            await _readable(queue.fileno())
    done = [first]
    while len(done) < queue.depth and queue.in_flight and (next_one := queue.try_reap()) is not None:
        done.append(next_one)
    return done


async def wait(running: Running) -> Report:
    """Waits until a flow has ended, and returns its report. Only one task of a loop at a time may wait for a
    flow.

    If the task is cancelled, for example by `asyncio.timeout`, the flow goes on.
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
