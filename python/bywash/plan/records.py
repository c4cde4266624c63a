"""Plain values that the model and the simulator return. Rates are in bytes a second, times in seconds, shares
from 0 to 1."""

from typing import Literal, NamedTuple, TypeAlias

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
    "Mark",
    "Report",
    "ResourceUse",
    "Target",
]

Architecture: TypeAlias = Literal["conventional", "user-level", "active", "direct"]
"""Architecture of a server's I/O."""


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


class Answer(NamedTuple):
    """Answer of the model for a description."""

    architecture: Architecture
    """Architecture of the server's I/O."""
    bound: Bound
    """Upper bound on the throughput."""
    closed: Closed
    """Performance with the description's number of threads."""


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
    """Distribution of the times from requests to their responses, in seconds; percentiles are exact to 1.6 %."""

    mean: Interval
    """Mean, with its confidence interval."""
    p50: float
    """Median."""
    p90: float
    """90th percentile."""
    p99: float
    """99th percentile."""
    p999: float
    """99.9th percentile."""
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


class Report(NamedTuple):
    """Report of a simulation. All fields but `events` cover the time after the warm-up."""

    architecture: Architecture
    """Architecture of the server's I/O."""
    seed: int
    """Seed of the random numbers."""
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
    processor_seconds: float
    """Processor time of a request, in seconds, including time that the processor waits for memory."""
    events: int
    """Number of events, those of the warm-up included."""
    is_whole: bool
    """True if the simulation ran to its end; a stopped one is less precise."""


class Bar(NamedTuple):
    """One bar of a figure of simulated servers."""

    name: str
    """Interconnect of the devices, and the place where TCP and the file system run."""
    throughput: Interval
    """Throughput in bytes a second."""
    binding: str
    """Resource that worked for the largest share of the time."""
    busy: float
    """Share of the time that the binding resource worked, from 0 to 1."""
    processors: float
    """Share of the time that the host's processors were taken, from 0 to 1."""
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
