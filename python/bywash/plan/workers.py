"""Computation of a sweep's pieces, by threads of this process or by the workers of a Dask cluster.

A piece is a range of rows. Its result does not depend on the worker, on the time, or on the number of times
that it was computed. Results arrive in any order and are reported as (number of the piece, result).
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
    """Default for `is_over`: always false."""
    return False


class Work(Protocol[Produced]):
    """Function that computes a piece while other threads run. Once `is_over` returns true, its result is not
    used."""

    def __call__(self, start: int, stop: int, is_over: Callable[[], bool] = never) -> Produced: ...


PIECES_PER_WORKER = 8
"""Number of pieces for each worker: enough that no worker waits long for the last one."""
RETRIES = 3
"""Number of times that Dask repeats a piece that has failed. Pieces lost with a worker are repeated without
limit."""


def processors() -> int:
    """Returns the number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def cut(rows: int, most: int, workers: int) -> list[Piece]:
    """Cuts rows into pieces of at most `most` rows, small enough that all workers are busy."""
    size = min(most, max(1, rows // (PIECES_PER_WORKER * max(1, workers))))
    return [(start, min(start + size, rows)) for start in range(0, rows, size)]


def by_threads(
    work: Work[Result],
    pieces: Sequence[Piece],
    threads: int,
    done: Callable[[int, Result], None],
) -> None:
    """Computes pieces in threads that end with this call."""
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
    """Computes pieces on a cluster whose workers have this package, of this version.

    If this ends early, pieces that have not begun are cancelled; the others run to their end.
    """
    cluster = needed("distributed", "dask")
    starts, stops = zip(*pieces, strict=True) if pieces else ((), ())
    # pure=False: each sweep computes its own pieces, even if another client computes the same ones.
    futures = client.map(work, starts, stops, pure=False, retries=RETRIES)
    numbers = {future.key: number for number, future in enumerate(futures)}
    try:
        for future in cluster.as_completed(futures):
            done(numbers[future.key], future.result())
            # Frees the worker's copy of the result, which is here now.
            future.release()
    except BaseException:
        client.cancel(futures)
        raise
