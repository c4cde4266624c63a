"""Predictions of programs under `bywash run`, which the command makes."""

import json
import sys

import pytest

import bywash
import bywash.plan

ANSWER = {
    "now": {"median": 2.0, "low": 1.9, "high": 2.2},
    "then": {"median": 1.0, "low": 0.9, "high": 1.1},
    "gain": {"median": 2.0, "low": 1.8, "high": 2.3},
    "changes": [{"kind": "read", "calls": 7}],
    "measured": {"then": {"median": 1.25, "low": 1.2, "high": 1.3}, "gain": 1.6, "error": 0.25},
}


@pytest.fixture
def command(tmp_path):
    """Makes a command that writes what it is given to a file, and the rest as told."""

    def make(text="", said="", status=0):
        path = tmp_path / "bywash"
        path.write_text(
            f"#!{sys.executable}\nimport json, sys\n"
            f"open({str(tmp_path / 'words')!r}, 'w').write(json.dumps(sys.argv[1:]))\n"
            f"sys.stdout.write({text!r})\nsys.stderr.write({said!r})\nsys.exit({status})\n"
        )
        path.chmod(0o755)
        return path

    return make


def test_the_command_s_answer_is_returned(command, tmp_path):
    told = bywash.plan.predict(["cat", "-u", "data"], runs=3, verify=True, before="true", command=command(json.dumps(ANSWER)))
    words = ["plan", "predict", "--json", "--runs", "3", "--verify", "--before", "true", "--", "cat", "-u", "data"]
    assert json.loads((tmp_path / "words").read_text()) == words
    assert (told.now.median, told.then.low, told.gain) == (2.0, 0.9, bywash.plan.Spread(2.0, 1.8, 2.3))
    assert told.measured == bywash.plan.Verified(bywash.plan.Spread(1.25, 1.2, 1.3), 1.6, 0.25)
    assert told.report == ANSWER
    unverified = ANSWER | {"measured": None}
    told = bywash.plan.predict(
        tmp_path / "program", log="commits", volatile=True, command=command(json.dumps(unverified))
    )
    assert told.measured is None
    words = ["--runs", "5", "--log", "commits", "--volatile", "--", str(tmp_path / "program")]
    assert json.loads((tmp_path / "words").read_text())[-7:] == words


def test_the_reason_is_raised_where_there_is_no_prediction(command):
    refused = command(said="bywash: no prediction: other programs used 40 % of the processors\n", status=125)
    with pytest.raises(bywash.plan.PredictionError, match="^no prediction: other programs used 40 %"):
        bywash.plan.predict("true", command=refused)
    with pytest.raises(bywash.Error, match="ended with 3$"):
        bywash.plan.predict("true", command=command(status=3))
    with pytest.raises(bywash.plan.PredictionError, match="install it, or name it: command=PATH"):
        bywash.plan.predict("true", command="/nowhere/bywash")
    with pytest.raises(ValueError, match="no program to predict"):
        bywash.plan.predict([])


@pytest.mark.simulates
def test_the_command_predicts_a_program_or_says_why_not(tmp_path, built):
    data = tmp_path / "data"
    data.write_bytes(bytes(1 << 20))
    try:
        told = bywash.plan.predict(["cat", data], runs=3, command=built)
    except bywash.plan.PredictionError as refused:
        assert "no prediction: " in str(refused), refused
    else:
        assert told.gain.low <= told.gain.median <= told.gain.high
        assert told.report["starts"] == 1
    with pytest.raises(bywash.plan.PredictionError, match="no prediction: |status 3"):
        bywash.plan.predict(["sh", "-c", "exit 3"], command=built)
