"""Files of costs and of steps."""

import json
from random import Random

import pytest

from enginecore.errors import ConfigurationError
from enginecore_simulation import CostModel, StepCosts, StepFeatures
from enginecore_simulation.files import read_costs, write_costs
from enginecore_simulation.fit import Fit, FitErrors
from enginecore_simulation.samples import StepSample, read_samples, read_seconds, write_samples

MODEL = CostModel(StepCosts(per_step=0.1, rho=1.5), StepCosts(per_token=1e-7, weights=1 / 3), gap=2e-5)


def test_costs_survive_their_file(tmp_path):
    file = tmp_path / "costs.toml"
    write_costs(file, Fit(MODEL, {"decode": FitErrors(80, 20, 0.01, 0.03, -0.002)}), {"model": 'a "b"', "device": "x"})
    assert read_costs(file) == MODEL
    assert "[held_out.decode]" in file.read_text()


def test_costs_may_be_json(tmp_path):
    file = tmp_path / "costs.json"
    file.write_text(json.dumps({"decode": {"per_step": 1}, "mixed": {"per_step": 2.5}}))
    assert read_costs(file) == CostModel(StepCosts(per_step=1), StepCosts(per_step=2.5))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("decode = ", "cannot be read"),
        ("[decode]\nper_step = 1\n", "mixed in .* must be a table of per_step, .*, got None"),
        ("gap = -1\n[decode]\n[mixed]\n", "gap in .* must be a number of seconds of at least 0, got -1"),
        ("gap = true\n[decode]\n[mixed]\n", "gap in .* must be a number of seconds of at least 0, got True"),
        ("gab = 1\n[decode]\n[mixed]\n", "costs.toml holds 'gab'; step costs have gap, decode, mixed"),
        ("[decode]\nper_stop = 1\n[mixed]\n", "decode in .*costs.toml has no 'per_stop'; it has per_step"),
        ('[decode]\n[mixed]\nweights = "1"\n', "mixed in .*costs.toml: weights must be a number, got '1'"),
        ("[decode]\n[mixed]\nweights = -1.0\n", "weights of a step's costs must be finite and at least 0, got -1.0"),
    ],
)
def test_wrong_costs_are_refused_with_what_is_wrong(tmp_path, text, message):
    file = tmp_path / "costs.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        read_costs(file)


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(ConfigurationError, match=r"cannot be read: .*No such file"):
        read_costs(tmp_path / "none.toml")


def test_steps_survive_their_table(tmp_path):
    samples = [StepSample(StepFeatures(3, 2, 3, 40, 0.5), 0.1), StepSample(StepFeatures(1, 1, 1, 7), 1 / 3)]
    write_samples(tmp_path / "steps.csv", samples)
    assert read_samples(tmp_path / "steps.csv") == samples
    assert read_seconds(tmp_path / "steps.csv") == [0.1, 1 / 3]


def test_a_table_of_ones_own_is_fitted(tmp_path):
    pytest.importorskip("scipy", reason="fits need the extra `lab`")
    random = Random(0)
    rows = [f"{n},{0.01 + 1e-5 * n}" for n in random.sample(range(1, 5000), 60)]
    table = "\r\n".join(["num_tokens,seconds", *rows])
    (tmp_path / "mine.csv").write_text(table, encoding="utf-8-sig")  # as spreadsheets save it
    model = read_costs(tmp_path / "mine.csv")
    assert model.seconds(StepFeatures(num_tokens=2500)) == pytest.approx(0.035, rel=1e-3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("num_tokens\n1\n", "lacks seconds; its columns are num_tokens, .*, seconds"),
        ("num_tokens,seconds,colour\n1,1,red\n", "has 'colour'; its columns are"),
        ("num_tokens,seconds\n1,soon\n", "steps.csv, line 2, seconds must be a number of at least 0, got 'soon'"),
        ("num_tokens,seconds\n1\n", "line 2, seconds must be a number of at least 0, got None"),
        ("num_tokens,seconds\n1,2,3\n", r"line 2, None must be a number of at least 0, got \['3'\]"),
        ("num_tokens,seconds\n1,inf\n", "line 2, seconds must be a number of at least 0, got 'inf'"),
        ("", "lacks num_tokens, seconds"),
    ],
)
def test_a_wrong_table_is_refused_with_what_is_wrong(tmp_path, text, message):
    (tmp_path / "steps.csv").write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        read_samples(tmp_path / "steps.csv")
