"""Experiment files: what they may say, and what is said of mistakes."""

import json
import re
from pathlib import Path

import pytest
import yaml

from enginecore.errors import ConfigurationError
from enginecore_lab.arms import for_replicate, load_arms
from enginecore_lab.experiment_file import load_experiment, parse_overrides
from enginecore_lab.statistics import Margin
from tests.lab.small import experiment, values

TOML = """
name = "chunks"
[workload]
kind = "synthetic"
num_requests = 10
[engine]
executor.use = "oracle"
[[arms]]
name = "whole prompts"
settings.scheduler.use = "prefill_first"
[[arms]]
name = "chunks"
settings.max_num_batched_tokens = 512
[primary]
metric = "itl_p99"
margin = 0.05
[slo]
ttft = 1.0
[window]
skip_first = 3
"""


def test_toml_yaml_and_json_say_the_same(tmp_path):
    (tmp_path / "e.toml").write_text(TOML)
    found = load_experiment(tmp_path / "e.toml")
    plain = found.model_dump(mode="json", exclude_none=True)
    (tmp_path / "e.json").write_text(json.dumps(plain))
    (tmp_path / "e.yaml").write_text(yaml.safe_dump(plain))
    assert found == load_experiment(tmp_path / "e.json") == load_experiment(tmp_path / "e.yaml")
    assert [arm.name for arm in found.arms] == ["whole prompts", "chunks"]
    assert (found.replicates, found.seed, found.clock, found.across) == (20, 0, "virtual", "mean")
    assert found.primary.margin_in_force() == Margin(0.05)
    assert found.slo.terms().ttft == 1.0
    assert found.window.window().skip_first == 3


def test_without_a_name_it_is_called_after_its_file(tmp_path):
    (tmp_path / "chunked.toml").write_text(TOML.replace('name = "chunks"\n[workload]', "[workload]"))
    assert load_experiment(tmp_path / "chunked.toml").name == "chunked"
    with pytest.raises(ConfigurationError, match="name: must be set"):
        load_experiment({key: value for key, value in values().items() if key != "name"})


def test_result_is_an_experiment_that_can_be_repeated():
    found = experiment()
    result = {"experiment": found.plain(), "comparisons": [], "sentence": ""}
    assert load_experiment(result) == found


@pytest.mark.parametrize(
    "said",
    [
        {"kind": "synthetic", "num_requests": 6, "lengths_from": {"kind": "jsonl"}},
        {"kind": "jsonl", "tenants": [{"name": "a"}, {"name": "b", "priority": 0}, {"name": "c", "ttft_slo": None}]},
    ],
    ids=lambda said: said["kind"],
)
def test_what_was_left_unsaid_is_left_so_when_a_result_is_repeated(tmp_path, said):
    """A tenant without a priority leaves requests their own; 0 would not."""
    trace = tmp_path / "own.jsonl"
    lines = [
        {"id": str(n), "arrival_s": n, "prompt_tokens": 5, "output_tokens": 3, "priority": n, "slo_ttft": 1.0}
        for n in range(1, 21)
    ]
    trace.write_text("\n".join(map(json.dumps, lines)))
    (said.get("lengths_from") or said)["path"] = str(trace)
    found = load_experiment({**values(), "workload": said})
    again = load_experiment(json.loads(json.dumps({"experiment": found.plain(), "comparisons": []})))
    assert again.workload.make(3, 0) == found.workload.make(3, 0)
    assert again.plain() == found.plain()


@pytest.mark.parametrize("held", [None, 5, "all"])
def test_result_that_was_edited_is_named(tmp_path, held):
    (tmp_path / "result.json").write_text(json.dumps({"experiment": held, "comparisons": []}))
    with pytest.raises(ConfigurationError, match=f"result.json holds no experiment, but {held!r} in its place"):
        load_experiment(tmp_path / "result.json", {"primary.margin": 0.1})


def test_overrides_lie_on_top(tmp_path):
    (tmp_path / "e.toml").write_text(TOML)
    overrides = parse_overrides(["replicates=8", "workload.num_requests = 5", "name=other words", 'slo.ttft="2"'])
    found = load_experiment(tmp_path / "e.toml", overrides | {"slo.ttft": 2})
    assert (found.replicates, found.workload.make(0, 0).requests[4:][1:], found.name) == (8, [], "other words")
    assert found.slo.ttft == 2


@pytest.mark.parametrize("text", ["replicates", "=8", "a..b=1"])
def test_overrides_need_key_and_value(text):
    with pytest.raises(ConfigurationError, match="write KEY=VALUE"):
        parse_overrides([text])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"replicate": 8}, "'replicate' is no setting here; did you mean replicates?"),
        ({"primary__metrik": "x"}, "primary: 'metrik' is no setting here; did you mean metric?"),
        ({"workload__num_request": 3}, "workload: 'num_request' is no setting here; did you mean num_requests?"),
        ({"arms": [{"nam": "a"}, {"name": "b"}]}, "arms.0: 'nam' is no setting here; did you mean name?"),
        ({"arms": [{"name": "a"}, {"name": "a"}]}, "arms: two arms are called 'a': their names must differ"),
        ({"arms": [{"name": "a"}]}, "arms: Tuple should have at least 2 items"),
        (
            {"primary__metric": "itl_p98"},
            "primary.metric = 'itl_p98': no active plugin offers metric 'itl_p98'; did you mean itl_p99 or itl_p95",
        ),
        ({"secondary__metrics": ["hit"]}, "secondary.metrics.0 = 'hit': no active plugin offers metric 'hit'"),
        ({"primary__margin": -1}, "primary.margin = -1: must be greater than or equal to 0"),
        ({"primary__margin": 2}, "primary.margin = 2: must be less than 1"),  # 2 % is 0.02
        ({"primary__margin": 0.1, "primary__margin_abs": 1}, "set one of them"),
        ({"replicates": 7}, "replicates = 7: must be at least 8"),
        ({"replicates": 1, "clock": "real"}, "replicates = 1 takes a virtual clock"),
        ({"replicates": 8, "across": "median"}, "across = 'median' takes at least 10 replicates, got 8"),
        ({"clock": "virtuel"}, "clock = 'virtuel': must be 'virtual' or 'real'"),
        (
            {"workload__kind": "synthetik"},
            "workload.kind = 'synthetik': no active plugin offers workload 'synthetik'; did you mean synthetic",
        ),
        ({"slo__ttft": float("inf")}, "slo.ttft = inf: must be a finite number"),
        ({"window__skip_first": "many"}, "window.skip_first = 'many': must be a valid integer"),
    ],
)
def test_mistakes_are_named(changes, message):
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        experiment(**changes)


def test_what_is_missing_is_named():
    made = values()
    del made["primary"], made["workload"]["kind"]
    with pytest.raises(ConfigurationError) as error:
        load_experiment(made)
    assert "2 keys are wrong" in str(error.value)
    assert "workload.kind: must be set" in str(error.value)
    assert "primary: must be set" in str(error.value)


def test_missing_and_malformed_files_are_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"absent\.toml"):
        load_experiment(tmp_path / "absent.toml")
    (tmp_path / "e.toml").write_text("name = ")
    with pytest.raises(ConfigurationError, match=r"e\.toml is malformed"):
        load_experiment(tmp_path / "e.toml")


def test_arms_lie_over_the_engine_and_the_environment_is_not_read(monkeypatch):
    monkeypatch.setenv("ENGINECORE_MAX_NUM_SEQS", "3")
    arms = [{"name": "a"}, {"name": "b", "settings": {"scheduler.use": "sjf", "max_num_seqs": 7}}]
    first, second = load_arms(experiment(arms=arms, engine__max_num_batched_tokens=99))
    assert [arm.settings.max_num_batched_tokens for arm in (first, second)] == [99, 99]
    assert [arm.settings.component("scheduler").name for arm in (first, second)] == ["fcfs", "sjf"]
    assert [arm.settings.max_num_seqs for arm in (first, second)] == [256, 7]


def test_wrong_settings_are_named_with_their_arm():
    arms = [{"name": "a"}, {"name": "the other", "settings": {"scheduler": {"use": "fcfss"}}}]
    with pytest.raises(ConfigurationError, match=r"arm 'the other': scheduler\.use = 'fcfss'.*did you mean fcfs"):
        load_arms(experiment(arms=arms))


def test_engines_have_a_seed_per_replicate_unless_one_is_named():
    asked = experiment(seed=5)
    assert [for_replicate(arm, asked, 3).settings.seed for arm in load_arms(asked)] == [8, 8]
    named = experiment(seed=5, engine__seed=1)
    assert [for_replicate(arm, named, 3).settings.seed for arm in load_arms(named)] == [1, 1]


@pytest.mark.parametrize("file", sorted((Path(__file__).parents[2] / "examples/experiments").glob("*.toml")), ids=str)
def test_examples_are_sound(file):
    assert load_arms(load_experiment(file))
