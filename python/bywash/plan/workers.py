"""Who computes the pieces of a sweep: threads of this process, or the workers of a Dask cluster.

A piece is a stretch of rows. Which of the two computes it, when, and how often after a worker was lost, changes nothing
of its result. Results come in any order and are told as (number of the piece, result).
"""

import concurrent.futures
import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from .optional import needed

if TYPE_CHECKING:
    import distributed

__all__ = ["Work", "by_dask", "by_threads", "cut", "processors"]

Result = TypeVar("Result")
Produced = TypeVar("Produced", covariant=True)
Piece = tuple[int, int]


def never() -> bool:
    """Nobody stops it."""
    return False


class Work(Protocol[Produced]):
    """Computes a piece; lets other threads run meanwhile. Once `is_over` says so, nobody asks for the result any more."""

    def __call__(self, start: int, stop: int, is_over: Callable[[], bool] = never) -> Produced: ...


PIECES_PER_WORKER = 8
"""So that no worker waits long for the last one."""
RETRIES = 3
"""Times that Dask computes a piece again that has failed. What was lost with a worker is computed again anyway."""


def processors() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0))


def cut(rows: int, most: int, workers: int) -> list[Piece]:
    """Pieces of at most so many rows, enough of them for so many workers."""
    size = min(most, max(1, rows // (PIECES_PER_WORKER * max(1, workers))))
    return [(start, min(start + size, rows)) for start in range(0, rows, size)]


def by_threads(
    work: Work[Result],
    pieces: Sequence[Piece],
    threads: int,
    done: Callable[[int, Result], None],
) -> None:
    """In threads that last no longer than this call."""
    over = threading.Event()
    with concurrent.futures.ThreadPoolExecutor(threads, "bywash-sweep") as pool:
        numbers = {pool.submit(work, *piece, over.is_set): number for number, piece in enumerate(pieces)}
        try:
            for future in concurrent.futures.as_completed(numbers):
                done(numbers[future], future.result())
        except BaseException:
            over.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def by_dask(
    work: Work[Result],
    pieces: Sequence[Piece],
    client: "distributed.Client",
    done: Callable[[int, Result], None],
) -> None:
    """On a cluster whose workers have this package, of this version.

    When this ends early, what has not begun there never does; what has goes on until its piece is done.
    """
    cluster = needed("distributed", "dask")
    starts, stops = zip(*pieces, strict=True) if pieces else ((), ())
    # pure=False: a piece of its own for each sweep, whatever another client computes.
    futures = client.map(work, starts, stops, pure=False, retries=RETRIES)
    numbers = {future.key: number for number, future in enumerate(futures)}
    try:
        for future in cluster.as_completed(futures):
            done(numbers[future.key], future.result())
            # What is here need not stay there.
            future.release()
    except BaseException:
        client.cancel(futures)
        raise
