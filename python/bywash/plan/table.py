"""Sweeps: one description, axes of numbers that vary, and a DataFrame with a row for each combination."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsFloat, TypeAlias

from .._bywash import RESOURCES, Description, Points, Trials, values_of
from .optional import needed
from .records import Architecture, Report
from .stopped import Stopped
from .workers import Work, by_dask, by_threads, cut, never, processors

if TYPE_CHECKING:
    import distributed
    import pandas

__all__ = ["sweep"]

Values: TypeAlias = str | SupportsFloat | Iterable[str | SupportsFloat]
Columns: TypeAlias = dict[str, Any]

ROWS_MAX = 1 << 16
"""Rows of a piece evaluated by the model: some milliseconds of work, which is the longest delay of Ctrl-C."""
DETAILED_ROWS_MAX = 1 << 10
"""Rows of a piece evaluated by the model with mean-value analysis."""
SIMULATED_PIECES = 1 << 14
"""Greatest number of pieces of a simulated sweep; a smaller sweep has one row in each piece."""


def sweep(
    description: Description,
    axes: Mapping[str, Values],
    *,
    architectures: Architecture | Sequence[Architecture] | None = None,
    response: bool = True,
    details: bool = False,
    simulate: bool = False,
    replications: int = 1,
    seed: int = 1,
    requests: int | None = None,
    seconds: float | None = None,
    threads: int | None = None,
    client: "distributed.Client | None" = None,
    progress: Callable[[int, int], object] | None = None,
) -> "pandas.DataFrame":
    """Evaluates or simulates every combination of the values of some numbers of a description, under some
    architectures. Needs pandas.

    description
        Description that gives all numbers that do not vary.
    axes
        Numbers that vary, by their names (`KEYS`), with their values: `"0 %:20 %:1 %"` from the first to
        the second in steps of the third, or a list of values, `["5 %", "10 %"]`. Counts may be numbers.
    architectures
        One of `ARCHITECTURES`, or several; None: all that the description's machine can have.
    response
        Adds the mean response time by the model, which takes some microseconds for each row and thread; without
        it a row takes a hundredth of a microsecond.
    details
        Adds the utilisation of each resource; with the model, also the results of mean-value analysis.
    simulate
        Simulates each combination, instead of using the model.
    replications, seed, requests, seconds
        For simulations: the number of runs of each combination, the seed that the runs' seeds follow
        from, and the end of a run, as for `simulate`.
    threads
        Number of threads that compute; None: one for each processor.
    client
        Client of a Dask cluster, whose workers compute instead. They need this package, of this version.
        A piece that is lost with its worker is computed again by another one, with the same result to the
        last bit.
    progress
        Function that is called with the number of complete rows, and of all rows.

    A row is a combination under an architecture; in a simulation, one replication of it. The replications
    vary fastest, then the architecture, and the first axis slowest. The first columns are the axes, in base
    units (bytes, seconds, cycles, shares of one), and `architecture`.

    The model adds `throughput`, the upper bound in bytes a second, and `binding`, the resource that limits
    it; and `response`, the mean response time under the description's load in seconds, infinite where the load
    is more than the server serves. With details it adds `utilisation RESOURCE` for each of `RESOURCES` at this throughput, and
    `closed_throughput` in bytes a second and `closed_response` in seconds, with the description's number of
    threads.

    A simulation adds `replication`, the `seed` with which `simulate` repeats the run, and the numbers of a
    `Report`. A column that ends in `half_width` is half the width of the 95 % confidence interval of the
    column before it; columns that end in `low` and `high` are the bounds of this interval. `load` is the state of
    the queues: `"steady"`, `"rising"` or `"overloaded"`. With details it adds `utilisation`, `working` and `waiting` of each resource. All
    architectures of a combination are simulated with the same seeds.

    Ctrl-C raises `Stopped`, a KeyboardInterrupt, whose `partial` is the DataFrame of the complete rows.
    """
    needed("pandas", "plan")
    if architectures is None:
        architectures = description.architectures
    chosen: list[Any] = [architectures] if isinstance(architectures, str) else list(architectures)
    grid = [(key, values_of(key, given)) for key, given in axes.items()]
    points = Points(description, grid, chosen)
    rows = len(points) * replications
    if rows <= 0:
        raise ValueError("there is nothing to compute: every axis needs a value, and there has to be an architecture")
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"an architecture is there twice: {', '.join(chosen)}")
    if threads is not None and threads < 1:
        raise ValueError(f"threads is {threads}, and must be at least 1")
    work: Work[Any]
    if simulate:
        trials = Trials(points, replications, seed, requests, seconds)
        work, most = functools.partial(simulated, trials), -(-rows // SIMULATED_PIECES)
    elif replications != 1 or requests is not None or seconds is not None:
        raise ValueError("replications, requests and seconds are of simulations: give simulate=True as well")
    else:
        work = functools.partial(evaluated, points, response, details)
        most = DETAILED_ROWS_MAX if details or response else ROWS_MAX
    pieces = cut(rows, most, capacity(threads, client))
    results: dict[int, Any] = {}
    finished = 0

    def done(number: int, result: Any) -> None:
        nonlocal finished
        results[number] = result
        start, stop = pieces[number]
        finished += stop - start
        if progress is not None:
            progress(finished, rows)

    def table() -> "pandas.DataFrame":
        there = sorted(results)
        np = needed("numpy", "plan")
        numbers = np.concatenate([np.arange(0), *(np.arange(*pieces[number]) for number in there)])
        columns = of_rows(numbers, grid, chosen, replications if simulate else None)
        parts = [results[number] for number in there]
        columns |= of_reports(parts, details) if simulate else of_model(parts, response, details)
        return frame(columns, numbers, is_whole=finished == rows)

    try:
        if client is None:
            by_threads(work, pieces, min(threads or processors(), len(pieces)), done)
        else:
            by_dask(work, pieces, client, done)
    except KeyboardInterrupt as interrupt:
        stopped = Stopped(f"stopped when {finished} of {rows} rows were there; 'partial' has them")
        stopped.partial = table()
        raise stopped from interrupt
    return table()


def capacity(threads: int | None, client: "distributed.Client | None") -> int:
    """Returns the number of pieces that are computed at a time."""
    if client is None:
        return threads or processors()
    needed("distributed", "dask")
    if client.asynchronous:
        raise TypeError("the client is for asyncio, and a sweep waits: give one made without asynchronous=True")
    return sum(client.nthreads().values())


def evaluated(
    points: Points, response: bool, details: bool, start: int, stop: int, is_over: Callable[[], bool] = never
) -> dict[str, bytes]:
    """Evaluates a piece by the model. Ignores `is_over`, since a piece is short."""
    return points.evaluate(start, stop, response, details)


def simulated(trials: Trials, start: int, stop: int, is_over: Callable[[], bool] = never) -> list[Report]:
    """Simulates the rows of a piece."""
    return trials.simulate(start, stop, is_over)


def of_rows(
    rows: Any, grid: Sequence[tuple[str, Sequence[float]]], architectures: list[str], replications: int | None
) -> Columns:
    """Returns the columns that identify rows, from the rows' numbers."""
    np, pd = needed("numpy", "plan"), needed("pandas", "plan")
    shape = [*(len(values) for _, values in grid), len(architectures), replications or 1]
    *places, architecture, replication = np.unravel_index(rows, shape)
    columns = {
        key: np.asarray(values, "float64")[place] for (key, values), place in zip(grid, places, strict=True)
    }
    columns["architecture"] = pd.Categorical.from_codes(architecture, architectures)
    if replications is not None:
        columns["replication"] = replication
    return columns


def of_model(parts: Sequence[Mapping[str, bytes]], response: bool, details: bool) -> Columns:
    """Returns the columns of the model's results."""
    np, pd = needed("numpy", "plan"), needed("pandas", "plan")

    def column(name: str, dtype: str) -> Any:
        return np.frombuffer(b"".join(part[name] for part in parts), dtype)

    columns = {
        "throughput": column("throughput", "float64"),
        "binding": pd.Categorical.from_codes(column("binding", "int8"), list(RESOURCES)),
    }
    if response:
        columns["response"] = column("response", "float64")
    if details:
        utilisation = column("utilisation", "float64").reshape(-1, len(RESOURCES))
        columns |= {f"utilisation {name}": utilisation[:, at] for at, name in enumerate(RESOURCES)}
        columns |= {name: column(name, "float64") for name in ("closed_throughput", "closed_response")}
    return columns


def of_reports(parts: Iterable[Iterable[Report]], details: bool) -> Columns:
    """Returns the columns of the simulator's results."""
    np, pd = needed("numpy", "plan"), needed("pandas", "plan")
    reports = [report for part in parts for report in part]
    # A machine may lack some resources, so the names come from the reports.
    names = list(dict.fromkeys(use.name for report in reports for use in report.resources))

    def column(of: Callable[[Report], float], dtype: str = "float64") -> Any:
        return np.fromiter(map(of, reports), dtype, len(reports))

    columns = {
        "seed": column(lambda report: report.seed, "uint64"),
        "load": pd.Categorical([report.load for report in reports], ["steady", "rising", "overloaded"]),
        "throughput": column(lambda report: report.throughput.mean),
        "throughput_half_width": column(lambda report: report.throughput.half_width),
        "binding": pd.Categorical([report.binding for report in reports], names),
        "rate": column(lambda report: report.rate.mean),
        "rate_half_width": column(lambda report: report.rate.half_width),
        "latency": column(lambda report: report.latency.mean.mean),
        "latency_half_width": column(lambda report: report.latency.mean.half_width),
        "latency_p50": column(lambda report: report.latency.p50),
        "latency_p50_low": column(lambda report: report.latency.p50_bounds[0]),
        "latency_p50_high": column(lambda report: report.latency.p50_bounds[1]),
        "latency_p90": column(lambda report: report.latency.p90),
        "latency_p90_low": column(lambda report: report.latency.p90_bounds[0]),
        "latency_p90_high": column(lambda report: report.latency.p90_bounds[1]),
        "latency_p99": column(lambda report: report.latency.p99),
        "latency_p99_low": column(lambda report: report.latency.p99_bounds[0]),
        "latency_p99_high": column(lambda report: report.latency.p99_bounds[1]),
        "latency_p999": column(lambda report: report.latency.p999),
        "latency_p999_low": column(lambda report: report.latency.p999_bounds[0]),
        "latency_p999_high": column(lambda report: report.latency.p999_bounds[1]),
        "latency_max": column(lambda report: report.latency.max),
        "processors_computing": column(lambda report: report.processors.computing),
        "processors_stalled": column(lambda report: report.processors.stalled),
        "processors_spinning": column(lambda report: report.processors.spinning),
        "processors_idle": column(lambda report: report.processors.idle),
        "processor_seconds": column(lambda report: report.processor_seconds),
        "requests": column(lambda report: report.requests, "int64"),
        "seconds": column(lambda report: report.seconds),
        "events": column(lambda report: report.events, "int64"),
    }
    if details:
        uses = [{use.name: use for use in report.resources} for report in reports]
        for what in ("utilisation", "working", "waiting"):
            for name in names:
                numbers = (getattr(use.get(name), what, float("nan")) for use in uses)
                columns[f"{what} {name}"] = np.fromiter(numbers, "float64", len(uses))
    return columns


def frame(columns: Columns, rows: Any, is_whole: bool) -> "pandas.DataFrame":
    """Makes the DataFrame. If rows are missing, its index is the numbers of the rows."""
    pd = needed("pandas", "plan")
    table: pandas.DataFrame = pd.DataFrame(columns, index=pd.RangeIndex(len(rows)) if is_whole else rows)
    return table
