"""What a server could do, and what binds it: the model and the simulator of `bywash plan` for Python programs.

    import bywash.plan

    server = bywash.plan.Description.from_file("server.toml")
    bywash.plan.evaluate(server, "active").bound              # the most that it can do, and what binds it
    warmer = server.with_("request.web.miss", "2 %")
    table = bywash.plan.sweep(server, {"request.web.miss": "0 %:20 %:1 %", "machine.disks.count": [1, 2, 4]})

- `Description`: a machine and its work; `PRESETS` come along, `KEYS` are the numbers of one that can be varied
- `evaluate`, `evaluate_all`: what the model says, under one of `ARCHITECTURES` or under all
- `simulate`: what the simulator says, with confidence and latency
- `sweep`: many of either at once, as a pandas DataFrame; on all processors, or on a Dask cluster
- `figure`, `FIGURES`, `check`: the paper's analytic figures, and what its text says against what is computed
- `bars`, `targets`: its simulated ones, 8 and 9, and what papers say of simulations against what comes out
- `Answer`, `Bound`, `Closed`, `Report`, `Interval`, `Latency`, `ResourceUse`, `Figure`, `Curve`, `Mark`, `Line`,
  `Bar`, `Target`: what they answer
- `DescriptionError`, and `Stopped`: Ctrl-C, with what there was by then

The paper is Carrera, Rangarajan, Bianchini and Iftode, Impact of Next-Generation I/O Architectures on the Design and
Performance of Network Servers.
"""

from .._bywash import (
    ARCHITECTURES,
    FIGURES,
    KEYS,
    PRESETS,
    RESOURCES,
    Description,
    bars,
    check,
    evaluate,
    figure,
    simulate,
    targets,
)
from ..errors import DescriptionError
from .records import (
    Answer,
    Architecture,
    Bar,
    Bound,
    Closed,
    Curve,
    Figure,
    Interval,
    Latency,
    Line,
    Mark,
    Report,
    ResourceUse,
    Target,
)
from .stopped import Stopped
from .table import sweep

__all__ = [
    "ARCHITECTURES",
    "Answer",
    "Architecture",
    "Bar",
    "Bound",
    "Closed",
    "Curve",
    "Description",
    "DescriptionError",
    "FIGURES",
    "Figure",
    "Interval",
    "KEYS",
    "Latency",
    "Line",
    "Mark",
    "PRESETS",
    "RESOURCES",
    "Report",
    "ResourceUse",
    "Stopped",
    "Target",
    "bars",
    "check",
    "evaluate",
    "evaluate_all",
    "figure",
    "simulate",
    "sweep",
    "targets",
]


def evaluate_all(description: Description) -> dict[Architecture, Answer]:
    """What `evaluate` answers, under each architecture."""
    return {architecture: evaluate(description, architecture) for architecture in ARCHITECTURES}
