"""`enginecore ab`, `capacity` and `sweep`."""

import json

import pytest

from enginecore.cli import main
from tests.lab.small import values


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Runs a command in a folder of its own, where an experiment lies; returns exit code, stdout and stderr."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    arrivals = {"kind": "constant", "rate": 0.5}
    made = values(workload__arrivals=arrivals, engine__max_num_seqs=2, slo__e2e=8.0, secondary__metrics=["makespan"])
    (tmp_path / "small.json").write_text(json.dumps(made))

    def run(*arguments):
        with pytest.raises(SystemExit) as exit:
            main(list(arguments))
        captured = capsys.readouterr()
        return exit.value.code or 0, captured.out, captured.err

    return run


def test_ab_prints_the_verdict_and_writes_result_and_report(run, tmp_path):
    code, out, err = run("ab", "small.json", "--set", "replicates=9")
    assert (code, err) == (0, "")
    assert out.startswith("In e2e_mean, fast is better than slow: ")
    assert "small-result/report.html" in out
    result = json.loads((tmp_path / "small-result/result.json").read_text())
    assert result["replicates"] == 9
    assert result["command"] == "enginecore ab small.json --set=replicates=9"
    assert "fast" in (tmp_path / "small-result/report.html").read_text()
    code, again, _ = run("ab", "small-result/result.json", "--json", "--out", "again")
    assert code == 0
    assert json.loads(again)["comparisons"] == result["comparisons"]


def test_ab_says_what_is_wrong_before_anything_runs(run, tmp_path):
    code, out, err = run("ab", "small.json", "--set", "primary.metric=e2e")
    assert (code, out) == (2, "")
    assert "no active plugin offers metric 'e2e'" in err
    assert not (tmp_path / "small-result").exists()


@pytest.mark.parametrize("out", ["/proc", "/proc/none", "small.json"])
def test_ab_needs_a_place_for_results_before_anything_runs(run, monkeypatch, out):
    monkeypatch.setattr("enginecore_lab.commands.ab.compare", None)
    code, _, err = run("ab", "small.json", "--out", out)
    assert code == 2
    assert f"error: {out} cannot hold results (" in err


def test_capacity_prints_a_rate_for_each_arm(run):
    code, out, err = run("capacity", "small.json", "--tolerance", "0.2")
    assert (code, err) == (0, "")
    assert [word in out for word in ("slow", "fast", "90%")] == [True] * 3
    code, out, _ = run("capacity", "small.json", "--tolerance", "0.2", "--json")
    slow, fast = json.loads(out)
    assert slow["rate"] < fast["rate"]
    assert run("capacity", "small.json", "--target", "2")[0] == 2


def test_sweep_prints_a_line_for_each_arm_and_rate(run):
    code, out, err = run("sweep", "small.json", "--rates", "0.5,2", "--set", "replicates=1")
    assert (code, err) == (0, "")
    assert [line.split()[:3] for line in out.splitlines() if " x " in line] == [
        ["slow", "0.5", "x"],
        ["slow", "2", "x"],
        ["fast", "0.5", "x"],
        ["fast", "2", "x"],
    ]
    code, out, _ = run("sweep", "small.json", "--rates", "1", "--set", "replicates=1", "--json")
    assert [cell["arm"] for cell in json.loads(out)] == ["slow", "fast"]


def test_json_has_no_infinity_and_no_nan(run):
    """Every prompt is too long, so every latency is infinite."""
    arguments = ["--rates", "1", "--set", "replicates=1", "--set", "engine.max_model_len=4", "--json"]
    code, out, _ = run("sweep", "small.json", *arguments)
    assert code == 0
    cells = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert cells[0]["metrics"]["e2e_mean"] == ["inf"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rates", "1,fast"], "--rates '1,fast': write numbers with commas"),
        (["--metrics", "itl_p98"], "--metrics: no active plugin offers metric 'itl_p98'; did you mean itl_p99"),
        (["--pool", "cloud"], "cloud"),
        (["--rates", "-1"], "above 0; got -1"),
    ],
)
def test_sweep_names_mistakes(run, arguments, message):
    code, _, err = run("sweep", "small.json", *arguments)
    assert code == 2
    assert message in err


@pytest.mark.parametrize("files", [["/proc/costs.toml"], ["costs.toml", "--steps", "/proc/steps.csv"]])
def test_calibrate_needs_a_place_for_results_before_anything_runs(run, monkeypatch, files):
    monkeypatch.setattr("enginecore_lab.commands.calibrate.run_calibration", None)
    code, _, err = run("calibrate", *files, "--set=model=llama-3.1-8b", "--set=executor.use=simulated")
    assert code == 2
    assert "error: /proc cannot hold results (" in err
