"""Plain values that the model and the simulator return. Rates are in bytes a second, times in seconds, shares
from 0 to 1."""

from typing import Any, Literal, NamedTuple, TypeAlias

__all__ = [
    "Answer",
    "Architecture",
    "Bar",
    "Bound",
    "Closed",
    "Curve",
    "Figure",
    "Interval",
    "Latency",
    "Line",
    "LoadState",
    "Mark",
    "Omission",
    "Performance",
    "Prediction",
    "ProcessorShares",
    "Report",
    "ResourceUse",
    "Sized",
    "Spread",
    "Target",
    "Trial",
    "Verified",
]

Architecture: TypeAlias = Literal["conventional", "user-level", "active", "direct"]
"""Architecture of a server's I/O."""

LoadState: TypeAlias = Literal["steady", "rising", "overloaded"]
"""State of a simulated server's queues. Rising: response times still rose at the end of the run, and a longer run
has longer ones. Overloaded: more requests arrive than are served, so response times have no limit."""


class Bound(NamedTuple):
    """Upper bound on a server's throughput, and the resource that limits it."""

    throughput: float
    """Throughput in bytes a second."""
    binding: str
    """Resource that is busy all the time, one of `bywash.plan.RESOURCES`."""
    utilisation: dict[str, float]
    """Utilisation of each resource at this throughput, from 0 to 1."""


class Closed(NamedTuple):
    """Performance of a server with its number of threads, by mean-value analysis."""

    throughput: float
    """Throughput in bytes a second."""
    requests: float
    """Throughput in requests a second."""
    response: float
    """Mean time from a request to its response, in seconds."""
    utilisation: dict[str, float]
    """Utilisation of each resource, from 0 to 1."""
    waiting: dict[str, float]
    """Mean number of requests at each resource, waiting or in service."""


class Performance(NamedTuple):
    """Mean performance of a server under its load, closed or open."""

    throughput: float
    """Throughput in bytes a second."""
    requests: float
    """Throughput in requests a second."""
    response: float
    """Mean response time, in seconds; infinite if the server is overloaded."""
    utilisation: dict[str, float]
    """Utilisation of each resource, from 0 to 1."""
    in_server: float
    """Mean number of requests in the server; infinite if it is overloaded."""
    capacity: float
    """Requests a second above which arrivals overload the server."""


class Answer(NamedTuple):
    """Answer of the model for a description."""

    architecture: Architecture
    """Architecture of the server's I/O."""
    bound: Bound
    """Upper bound on the throughput."""
    closed: Closed
    """Performance with the description's number of threads, all of them always busy or thinking."""
    performance: Performance
    """Performance under the description's load, which is the same as `closed` unless requests arrive at a rate of
    their own (`load.arrivals`)."""


class Curve(NamedTuple):
    """One curve of a figure."""

    name: str
    """Name of the curve."""
    x: tuple[float, ...]
    """Values of the quantity that varies, in the figure's unit."""
    y: tuple[float, ...]
    """Throughput in MiB/s."""


class Mark(NamedTuple):
    """A point of a figure that the paper's text mentions."""

    x: float
    """Value of the quantity that varies, in the figure's unit."""
    y: float
    """Throughput in MiB/s."""
    says: str
    """Statement of the text about the point."""


class Figure(NamedTuple):
    """One of the paper's figures."""

    number: int
    """Number of the figure in the paper."""
    title: str
    """Title of the figure."""
    x: str
    """Name of the quantity that varies, with its unit."""
    curves: tuple[Curve, ...]
    """Curves of throughput over this quantity."""
    marks: tuple[Mark, ...]
    """Points that the paper's text mentions."""


class Line(NamedTuple):
    """Statement of the paper's text, and the computed value."""

    figure: int
    """Number of the figure that the statement is about."""
    point: str
    """Subject of the statement."""
    says: str
    """The statement."""
    computed: str
    """Computed value, as text."""
    verdict: Literal["agrees", "differs", "reference"]
    """Result of the comparison; reference: the text gives no number."""
    note: str
    """Reason for a difference."""


class Interval(NamedTuple):
    """Confidence interval of a simulated mean."""

    mean: float
    """The mean."""
    half_width: float
    """Half of the interval's width: the true mean is within it with 95 % confidence."""


class Latency(NamedTuple):
    """Distribution of the times from requests to their responses, in seconds; percentiles are exact to 1.6 %.

    Bounds are the least and the greatest value with 95 % confidence; the greatest is infinite if the run is too
    short for it. All times of an overloaded server are infinite."""

    mean: Interval
    """Mean, with its confidence interval."""
    p50: float
    """Median."""
    p50_bounds: tuple[float, float]
    """Bounds of the median."""
    p90: float
    """90th percentile."""
    p90_bounds: tuple[float, float]
    """Bounds of the 90th percentile."""
    p99: float
    """99th percentile."""
    p99_bounds: tuple[float, float]
    """Bounds of the 99th percentile."""
    p999: float
    """99.9th percentile."""
    p999_bounds: tuple[float, float]
    """Bounds of the 99.9th percentile."""
    max: float
    """Longest time."""


class ResourceUse(NamedTuple):
    """Use of one kind of resource in a simulation."""

    name: str
    """Name of the resource."""
    units: int
    """Number of units."""
    utilisation: float
    """Share of the time that a unit was taken, averaged over all units."""
    working: float
    """Share of the time that a unit worked, averaged over all units. A unit that was held while its request
    waited for another resource was taken, but did not work."""
    busiest: float
    """Share of the time that the busiest unit worked."""
    waiting: float
    """Mean number of requests that waited, over all units."""


class ProcessorShares(NamedTuple):
    """Shares of the time in which the host's processors compute, stall, spin, and are idle, from 0 to 1 each, 1 in
    all. A processor is taken while it computes, stalls or spins."""

    computing: float
    """Share in which a processor computes, at the speed that it has with an idle memory."""
    stalled: float
    """Share in which a processor waits for memory in a copy or a checksum."""
    spinning: float
    """Share in which a processor spins for a device, if the load spins."""
    idle: float
    """Share in which no thread occupies a processor, because all wait for devices."""


class Report(NamedTuple):
    """Report of a simulation. All fields but `events` cover the time after the warm-up."""

    architecture: Architecture
    """Architecture of the server's I/O."""
    seed: int
    """Seed of the random numbers."""
    load: LoadState
    """State of the queues: steady for a closed load."""
    offered: float | None
    """Requests that arrive a second, of an open load."""
    capacity: Interval | None
    """Requests a second that are served at most, of an open load."""
    requests: int
    """Requests served."""
    seconds: float
    """Simulated time, in seconds."""
    throughput: Interval
    """Throughput in bytes a second."""
    rate: Interval
    """Throughput in requests a second."""
    latency: Latency
    """Times from requests to their responses."""
    resources: tuple[ResourceUse, ...]
    """Use of each resource."""
    binding: str
    """Name of the resource that worked for the largest share of the time."""
    processors: ProcessorShares
    """Use of the host's processors."""
    processor_seconds: float
    """Processor time of a request, in seconds, including time that the processor waits for memory."""
    events: int
    """Number of events, those of the warm-up included."""
    is_whole: bool
    """True if the simulation ran to its end; a stopped one is less precise."""


class Trial(NamedTuple):
    """One value of the number that `size` searches, simulated."""

    value: float
    """The value: requests a second, or a number of parts."""
    response: float
    """The limited statistic of the response times, in seconds."""
    bounds: tuple[float, float]
    """Least and greatest value of the statistic, with 95 % confidence."""
    verdict: Literal["within", "unclear", "above"]
    """Position of these bounds to the limit: both at most the limit, on both sides, or both above."""
    load: LoadState
    """State of the queues."""
    binding: str
    """Name of the resource that worked for the largest share of the time."""
    busy: float
    """Share of the time that this resource worked."""
    runs: int
    """Number of runs."""


class Sized(NamedTuple):
    """Answer of `size`."""

    key: str
    """Name of the number that was searched."""
    statistic: str
    """Name of the limited statistic."""
    limit: float
    """The limit, in seconds."""
    answer: Trial
    """The most load, or the fewest parts, within the limit for certain."""
    beyond: Trial | None
    """The nearest trial with more load, or fewer parts, which is not within for certain; None if one part
    suffices."""
    above: Trial | None
    """The nearest trial on that side that is above the limit for certain."""
    trials: tuple[Trial, ...]
    """All trials, by increasing value."""


class Omission(NamedTuple):
    """Lines of a recording that were treated alike."""

    what: str
    """Description of the lines, with the reason."""
    lines: int
    """Number of the lines."""
    first_line: int
    """Number of the first of them, from 1."""


class Bar(NamedTuple):
    """One bar of a figure of simulated servers."""

    name: str
    """Interconnect of the devices, and the place where TCP and the file system run."""
    throughput: Interval
    """Throughput in bytes a second."""
    binding: str
    """Resource that binds: made faster by a tenth, it raises the throughput most. `"none"` if none does by more
    than the simulation's uncertainty."""
    busiest: str
    """Resource that worked for the largest share of the time."""
    busy: float
    """Share of the time that the busiest resource worked, from 0 to 1."""
    processors: float
    """Share of the time that the host's processors were taken: computing, or stalled on memory, from 0 to 1."""
    computing: float
    """Share of the time that the host's processors computed, from 0 to 1."""
    stalled: float
    """Share of the time that the host's processors stalled on memory, from 0 to 1."""
    says: float | None
    """Ratio to the figure's first bar that the paper states."""
    says_binding: str | None
    """Resource that the paper says is the limit."""
    verdict: Literal["agrees", "differs", "reference"]
    """Result of comparing the binding resource with the one that the paper names; reference: it names none."""


class Target(NamedTuple):
    """Statement of a paper about a simulation, and the number that is simulated here."""

    source: str
    """Part of the paper that makes the statement."""
    what: str
    """Quantity that the statement is about."""
    says: str
    """The statement: a value, "more than" or "at most" a limit, or "nothing"."""
    simulated: float
    """Number simulated here."""
    verdict: Literal["agrees", "differs", "reference"]
    """Result of the comparison: a value agrees within 15 %, a limit strictly; reference: no number is published."""
    note: str
    """Reason for a difference."""


class Spread(NamedTuple):
    """Median of repeated measurements, or of predictions from them, with its quartiles."""

    median: float
    """The median."""
    low: float
    """First quartile."""
    high: float
    """Third quartile."""


class Verified(NamedTuple):
    """Runs of a program under `bywash run`, against the prediction of them."""

    then: Spread
    """Time of the program under `bywash run`, in seconds."""
    gain: float
    """Time by the kernel alone, divided by the time under `bywash run`."""
    error: float
    """Predicted gain divided by the measured one, minus 1."""


class Prediction(NamedTuple):
    """Prediction of `predict` for a program."""

    now: Spread
    """Time of the program by the kernel alone, in seconds."""
    then: Spread
    """Predicted time of the program under `bywash run`, in seconds."""
    gain: Spread
    """Predicted gain: the time by the kernel alone, divided by the time under `bywash run`."""
    measured: Verified | None
    """Runs under `bywash run`, if they were made."""
    report: dict[str, Any]
    """Everything that `bywash plan predict --json` prints, with the calls that change and the parts that are
    unknown."""
