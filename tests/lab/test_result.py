"""`result.json`: the same for the same experiment, complete, and readable again."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from enginecore.errors import ConfigurationError
from enginecore_lab import compare, load_experiment
from enginecore_lab.result import read_result, to_json
from tests.lab.small import experiment, values

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def comparison():
    return compare(experiment(), command="enginecore ab small.toml").comparison


def test_result_holds_what_it_takes_to_find_it_again(comparison):
    plain = json.loads(to_json(comparison))
    assert load_experiment(plain) == experiment()
    assert plain["command"] == "enginecore ab small.toml"
    assert plain["versions"].keys() >= {"python", "enginecore", "numpy", "scipy", "statsmodels"}
    assert all(len(digest) == 64 for digest in plain["workload_hashes"])
    assert plain["arms"][0]["settings"]["scheduler"]["use"] == "fcfs"
    assert plain["arms"][0]["info"]["num_blocks"] == 4096
    assert plain["seed"] == 0


def test_result_is_repeated_by_itself_if_nothing_else_is_known():
    assert compare(experiment()).comparison.command == "enginecore ab result.json"


def test_result_can_be_read_again(comparison, tmp_path):
    (tmp_path / "result.json").write_text(to_json(comparison))
    assert read_result(tmp_path / "result.json") == comparison


def test_values_that_json_has_no_number_for_survive(comparison, tmp_path):
    arm = comparison.arms[0]
    arm.metrics["odd"] = [math.inf, -math.inf, math.nan]
    try:
        (tmp_path / "result.json").write_text(to_json(comparison))
    finally:
        del arm.metrics["odd"]
    odd = read_result(tmp_path / "result.json").arms[0].metrics["odd"]
    assert odd[:2] == [math.inf, -math.inf]
    assert math.isnan(odd[2])


@pytest.mark.parametrize("text", ["", "[]", '{"name": "x"}'])
def test_what_is_no_result_is_refused(tmp_path, text):
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(ConfigurationError, match=r"result\.json is no result"):
        read_result(tmp_path / "result.json")


def test_two_processes_with_other_hash_seeds_write_the_same_bytes(tmp_path):
    made = values(secondary__metrics=["ttft_mean", "makespan", "failed_share"])
    (tmp_path / "small.json").write_text(json.dumps(made))
    children = []
    for seed in ("1", "2"):
        command = [sys.executable, "-m", "enginecore.cli", "ab", "small.json", "--json", "--out", seed]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        children.append(
            subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        )
    written = []
    for seed, child in zip(("1", "2"), children, strict=True):
        out, err = child.communicate(timeout=120)
        assert child.returncode == 0, err.decode()
        text = (tmp_path / seed / "result.json").read_text()
        assert out.decode() == text
        created = f'"created": "{json.loads(text)["created"]}"'
        written.append(text.replace(created, ""))
    assert written[0] == written[1]
    assert '"verdict": "better"' in written[0]
