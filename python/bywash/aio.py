"""Receiving in asyncio: the task waits, and the loop goes on.

To allocate and to ship seldom wait; where they may, `asyncio.to_thread(path.alloc, nbytes)` keeps the loop going.
"""

import asyncio
from collections.abc import AsyncIterator

from ._bywash import Message, Path
from .errors import Closed

__all__ = ["messages", "receive"]


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


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
