"""Performance prediction for servers: the model and the simulator of `bywash plan` for Python programs.

    import bywash.plan

    server = bywash.plan.Description.from_file("server.toml")
    bywash.plan.evaluate(server, "active").bound              # greatest throughput, and what limits it
    warmer = server.with_("request.web.miss", "2 %")
    table = bywash.plan.sweep(server, {"request.web.miss": "0 %:20 %:1 %", "machine.disks.count": [1, 2, 4]})

- `Description`: a machine and its workload; `PRESETS` are built in, `KEYS` are the numbers that can be varied
- `evaluate`, `evaluate_all`: the model's answer, under one of `ARCHITECTURES` or under all
- `simulate`: the simulator's report, with confidence intervals and latency
- `size`: the most load, or the fewest parts, with a response time under a limit
- `trace`, `Trace`: recorded calls of programs; `replay`: a report of these calls on a machine
- `predict`: how much faster a program would be under `bywash run`
- `sweep`: either of them for many descriptions, as a pandas DataFrame; on all processors, or on a Dask
  cluster
- `figure`, `FIGURES`, `check`: the paper's analytic figures, and statements of its text against computed
  values
- `bars`, `targets`: the paper's simulated figures, 8 and 9, and statements of papers against simulated
  numbers
- `Answer`, `Bound`, `Closed`, `Performance`, `Report`, `Interval`, `Latency`, `ResourceUse`, `ProcessorShares`, `Sized`,
  `Trial`, `Omission`, `Figure`, `Curve`, `Mark`, `Line`, `Bar`, `Target`, `Prediction`, `Spread`, `Verified`: results of
  these functions
- `DescriptionError`, `PredictionError`, `Stopped`: an invalid description, a program that cannot be predicted, and Ctrl-C
  with the results so far

The paper is Carrera, Rangarajan, Bianchini and Iftode, Impact of Next-Generation I/O Architectures on the
Design and Performance of Network Servers.
"""

from .._bywash import (
    ARCHITECTURES,
    FIGURES,
    KEYS,
    PRESETS,
    RESOURCES,
    Description,
    Trace,
    bars,
    check,
    evaluate,
    figure,
    replay,
    simulate,
    size,
    targets,
    trace,
)
from ..errors import DescriptionError, PredictionError
from .prediction import predict
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
    Omission,
    Performance,
    Prediction,
    ProcessorShares,
    Report,
    ResourceUse,
    Sized,
    Spread,
    Target,
    Trial,
    Verified,
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
    "Omission",
    "PRESETS",
    "Performance",
    "Prediction",
    "PredictionError",
    "ProcessorShares",
    "RESOURCES",
    "Report",
    "ResourceUse",
    "Sized",
    "Spread",
    "Stopped",
    "Target",
    "Trace",
    "Trial",
    "Verified",
    "bars",
    "check",
    "evaluate",
    "evaluate_all",
    "figure",
    "predict",
    "replay",
    "simulate",
    "size",
    "sweep",
    "targets",
    "trace",
]


def evaluate_all(description: Description) -> dict[Architecture, Answer]:
    """Returns the answer of `evaluate` for each architecture that the machine can have."""
    return {architecture: evaluate(description, architecture) for architecture in description.architectures}
