"""Plain values that the model and the simulator tell. Rates are bytes a second, times seconds, shares from 0 to 1."""

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
"""How the I/O of a server is built."""


class Bound(NamedTuple):
    """The most that a server can do, and what keeps it from more."""

    throughput: float
    """Bytes a second."""
    binding: str
    """What is busy all the time, one of `bywash.plan.RESOURCES`."""
    utilisation: dict[str, float]
    """How busy each resource is then."""


class Closed(NamedTuple):
    """What a server does with its number of threads, by mean-value analysis."""

    throughput: float
    """Bytes a second."""
    requests: float
    """Requests a second."""
    response: float
    """Seconds from a request to its answer, on the average."""
    utilisation: dict[str, float]
    """How busy each resource is."""
    waiting: dict[str, float]
    """Requests at each resource, waiting or served."""


class Answer(NamedTuple):
    """What the model says of a description."""

    architecture: Architecture
    """How its I/O is built."""
    bound: Bound
    """What it does at most."""
    closed: Closed
    """What it does with its threads."""


class Curve(NamedTuple):
    """One curve of a figure."""

    name: str
    """Whose it is."""
    x: tuple[float, ...]
    """What varies, in the figure's unit."""
    y: tuple[float, ...]
    """Throughput in MiB/s."""


class Mark(NamedTuple):
    """A point of which the paper's text speaks."""

    x: float
    """Where."""
    y: float
    """Throughput in MiB/s."""
    says: str
    """What the text says."""


class Figure(NamedTuple):
    """One of the paper's figures."""

    number: int
    """Its number in the paper."""
    title: str
    """What it shows."""
    x: str
    """What varies, with its unit."""
    curves: tuple[Curve, ...]
    """Throughput over that."""
    marks: tuple[Mark, ...]
    """What the text says of it."""


class Line(NamedTuple):
    """Something that the paper's text says, against what is computed."""

    figure: int
    """The figure that it is about."""
    point: str
    """What it is about."""
    says: str
    """What the text says."""
    computed: str
    """What is computed."""
    verdict: Literal["agrees", "differs", "reference"]
    """Whether that is what it says; reference: the text gives no number."""
    note: str
    """Where they differ, why."""


class Interval(NamedTuple):
    """A mean of what was simulated."""

    mean: float
    """The mean."""
    half_width: float
    """The true one is at most so far away, with 95 % confidence."""


class Latency(NamedTuple):
    """How the times from requests to their answers are distributed, in seconds; shares are known to 1.6 %."""

    mean: Interval
    """The mean."""
    p50: float
    """Half are shorter."""
    p90: float
    """Nine of ten are shorter."""
    p99: float
    """99 of 100 are shorter."""
    p999: float
    """999 of 1000 are shorter."""
    max: float
    """The longest."""


class ResourceUse(NamedTuple):
    """How busy one kind of resource was in a simulation."""

    name: str
    """Its name."""
    units: int
    """How many there are."""
    utilisation: float
    """The share of the time that one was taken, on the average over all."""
    working: float
    """The share of the time that one worked: less, if it was kept while something else was waited for."""
    busiest: float
    """The same of the one that worked most."""
    waiting: float
    """Requests that waited, over all."""


class Report(NamedTuple):
    """What came of a simulation; all but `events` is of the time behind the warm-up."""

    architecture: Architecture
    """How its I/O was built."""
    seed: int
    """Which run."""
    requests: int
    """Requests served."""
    seconds: float
    """Simulated seconds."""
    throughput: Interval
    """Bytes a second."""
    rate: Interval
    """Requests a second."""
    latency: Latency
    """From a request to its answer."""
    resources: tuple[ResourceUse, ...]
    """How busy everything was."""
    binding: str
    """What worked most of its time."""
    processor_seconds: float
    """Seconds of a processor that a request took, waiting for memory among them."""
    events: int
    """Events, those of the warm-up too."""
    is_whole: bool
    """Whether it came to its end; what was stopped says less."""


class Bar(NamedTuple):
    """One bar of a figure of simulated servers."""

    name: str
    """How devices are joined, and who runs TCP and the file system."""
    throughput: Interval
    """Bytes a second."""
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
    """Whether the binding resource is the one that the paper names; reference: it names none."""


class Target(NamedTuple):
    """Statement of a paper about something that it simulated, and the number that comes out here."""

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
