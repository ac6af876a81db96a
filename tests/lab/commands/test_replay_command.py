"""`enginecore replay`."""

import json

import pytest

from enginecore.cli import main

SMALL = ("--workload", "kind=synthetic", "--workload", "num_requests=30", "--workload", "prompt.kind=constant",
         "--workload", "prompt.tokens=64", "--workload", "output.kind=constant", "--workload", "output.tokens=8",
         "--workload", "arrivals.kind=poisson", "--workload", "arrivals.rate=20")  # fmt: skip

ENGINE = ("--set", "model=llama-3.1-8b", "--set", "executor.use=simulated", "--set", "max_model_len=4096")

EXPERIMENT = """
name = "two orders"
seed = 7
reveal_lengths = true
[workload]
kind = "synthetic"
num_requests = 40
arrivals = {kind = "poisson", rate = 20.0}
prompt = {kind = "constant", tokens = 64}
output = {kind = "uniform", low = 2, high = 30}
[engine]
model = "llama-3.1-8b"
max_model_len = 4096
max_num_seqs = 4
executor.use = "simulated"
[[arms]]
name = "in order"
[[arms]]
name = "shortest first"
settings.scheduler.use = "sjf"
[primary]
metric = "e2e_mean"
[slo]
ttft = 1.0
[window]
skip_first = 5
"""


@pytest.fixture
def run(capsys, monkeypatch):
    """Runs the command; returns exit code, stdout and stderr."""
    monkeypatch.setenv("COLUMNS", "160")

    def run(*arguments):
        with pytest.raises(SystemExit) as exit:
            main(("replay", *arguments))
        captured = capsys.readouterr()
        return exit.value.code or 0, captured.out, captured.err

    return run


@pytest.fixture
def experiment(tmp_path):
    file = tmp_path / "experiment.toml"
    file.write_text(EXPERIMENT)
    return str(file)


def answer(run, *arguments):
    code, out, err = run(*arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_a_workload_on_an_engine(run):
    code, out, err = run(*SMALL, *ENGINE, "--slo", "ttft=1")
    assert (code, err) == (0, "")
    assert "30 requests, open loop" in out
    assert "scheduler fcfs" in out
    assert "240 output tokens" in out
    rows = {line.split("│")[1].strip(): line for line in out.splitlines() if line.count("│") > 2}
    assert {"ttft", "itl", "e2e", "slo_attainment", "makespan"} <= rows.keys()
    assert rows["ttft"].count(" ms ") == 3
    assert "│ -" in rows["ttft"].replace("  ", "")
    assert "slowdown" not in rows
    assert "/s │" in rows["requests_per_s"]
    assert "1/s" not in rows["requests_per_s"]


def test_json_is_everything(run):
    given = answer(run, *SMALL, *ENGINE)
    assert given["num_requests"] == 30
    assert given["virtual"] is True
    assert given["metrics"]["ttft_mean"] > 0
    assert given["metrics"]["cache_hit_share"] == 0
    assert "at least 1000" in given["refused"]["ttft_p99"]
    assert given["info"]["components"]["scheduler"] == "fcfs"
    assert given["settings"]["max_model_len"] == 4096
    assert not given["saturated"]


def test_the_same_again_is_the_same(run):
    first, second = answer(run, *SMALL, *ENGINE), answer(run, *SMALL, *ENGINE)
    assert {**first, "wall_seconds": 0} == {**second, "wall_seconds": 0}
    other = answer(run, *SMALL, *ENGINE, "--seed", "1")
    assert other["workload_hash"] != first["workload_hash"]


def test_alone_gives_slowdowns(run):
    given = answer(run, *SMALL, *ENGINE, "--alone")
    assert given["metrics"]["slowdown_max"] >= given["metrics"]["slowdown_p50"] >= 1.0


def test_an_arm_of_an_experiment(run, experiment):
    first, second = answer(run, experiment), answer(run, experiment, "--arm", "shortest first")
    assert first["info"]["components"]["scheduler"] == "fcfs"
    assert second["info"]["components"]["scheduler"] == "sjf"
    assert first["workload_hash"] == second["workload_hash"]
    assert second["metrics"]["e2e_mean"] < first["metrics"]["e2e_mean"]
    assert "slo_attainment" in first["metrics"]


def test_options_go_on_top_of_an_experiment(run, experiment):
    given = answer(run, experiment, "--set", "scheduler.use=lpm", "--workload", "num_requests=12", "--seed", "3")
    assert given["info"]["components"]["scheduler"] == "lpm"
    assert given["num_requests"] == 12
    assert given["settings"]["seed"] == 7


def test_failures_and_overload_are_said(run, experiment):
    code, out, _ = run(experiment, "--set", "max_model_len=64")
    assert code == 0
    assert "warning: " in out
    assert "count as infinitely late" in out
    code, out, _ = run(experiment, "--workload", "arrivals.rate=2000")
    assert "the queue only grew" in out


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "there is nothing to replay"),
        (["--arm", "x"], "arms are those of an experiment"),
        (["--workload", "kind=nonsense"], "nonsense"),
        ([*SMALL, *ENGINE, "--slo", "itl=1"], "--slo itl=1: must be one of ttft, tpot, e2e"),
        ([*SMALL, *ENGINE, "--slo", "ttft=-1"], "above 0"),
        ([*SMALL, "--set", "executor.use=oracle"], "took no time for its first step"),
        ([*SMALL, *ENGINE, "--skip-first", "30"], "leave none of 30"),
    ],
)
def test_what_cannot_be_run_is_said(run, arguments, why):
    code, _, err = run(*arguments)
    assert code != 0
    assert why in err


def test_arms_and_files_that_are_not_there(run, experiment):
    code, _, err = run(experiment, "--arm", "shortest firs")
    assert code == 2
    assert "did you mean" in err
    assert "in order, shortest first" in err
    code, _, err = run(experiment, "--config", experiment)
    assert code == 2
    assert "use --set" in err
