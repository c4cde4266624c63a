"""Predictions of programs under `bywash run`, which the command `bywash plan predict` makes."""

import json
import os
import subprocess
from collections.abc import Sequence
from typing import Any, TypeAlias

from ..errors import PredictionError
from .records import Prediction, Spread, Verified

__all__ = ["predict"]

Word: TypeAlias = str | os.PathLike[str]


def predict(
    program: Word | Sequence[Word],
    *,
    runs: int = 5,
    verify: bool = False,
    before: str | None = None,
    log: Word | None = None,
    volatile: bool = False,
    command: Word = "bywash",
) -> Prediction:
    """Predicts how much faster a program would be under `bywash run`. Runs the program several times.

    program
        The program and its arguments; a program without arguments may be given alone.
    runs
        Number of runs of each kind: by the kernel alone, with the recorder, and under `bywash run`; 3 to 100.
    verify
        Also runs the program under `bywash run`, in turns with the others, for the result's `measured`.
    before
        Command of the shell that restores what the program changes, run before each run.
    log
        Predicts `bywash run --log`: commits go to this log.
    volatile
        Accepts a log in memory, where no commit survives a power failure.
    command
        The command `bywash`, which makes the prediction.

    The program must do the same each time; its input is empty, and its output is discarded. A `PredictionError` has
    the reason why there is no prediction, such as other work on this machine. Ctrl-C ends the runs.
    """
    words: list[Word] = [program] if isinstance(program, str | os.PathLike) else list(program)
    if not words:
        raise ValueError("there is no program to predict: give it and its arguments")
    options: list[Word] = ["--json", "--runs", str(runs)]
    options += ["--verify"] if verify else []
    options += ["--before", before] if before is not None else []
    options += ["--log", log] if log is not None else []
    options += ["--volatile"] if volatile else []
    return prediction(json.loads(output_of([command, "plan", "predict", *options, "--", *words])))


def output_of(words: Sequence[Word]) -> bytes:
    """Runs a command, and returns its output."""
    try:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as error:
        reason = f"cannot run '{os.fspath(words[0])}' ({error.strerror}); install it, or name it: command=PATH"
        raise PredictionError(reason) from error
    with process:
        try:
            output, said = process.communicate()
        except BaseException:
            # The command ends the program that it runs.
            process.terminate()
            raise
    if process.returncode != 0:
        told = said.decode(errors="replace").strip() or f"'{os.fspath(words[0])}' ended with {process.returncode}"
        raise PredictionError(told.removeprefix("bywash: "))
    return output


def prediction(told: dict[str, Any]) -> Prediction:
    """Makes a `Prediction` of the command's answer."""
    measured = told.get("measured")
    return Prediction(
        now=spread(told["now"]),
        then=spread(told["then"]),
        gain=spread(told["gain"]),
        measured=None if measured is None else Verified(spread(measured["then"]), measured["gain"], measured["error"]),
        report=told,
    )


def spread(told: dict[str, float]) -> Spread:
    """Makes a `Spread` of an object of the command's answer."""
    return Spread(told["median"], told["low"], told["high"])
