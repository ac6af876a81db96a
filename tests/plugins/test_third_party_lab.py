"""`examples/third_party_lab`: a loader and a metric from somebody else's wheel, chosen by an experiment file."""

import json
import shutil

import pytest

from tests.plugins.environment import REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "third_party_lab"


@pytest.fixture
def environment(third_party):
    return third_party


@pytest.fixture
def folder(environment, tmp_path):
    """A folder with the experiment and the log that it reads."""
    done = environment.python("-c", f"import os, runpy; os.chdir({str(tmp_path)!r}); "
                              f"runpy.run_path({str(EXAMPLE / 'make_log.py')!r}, run_name='__main__')")  # fmt: skip
    assert done.returncode == 0, done.stderr
    shutil.copy(EXAMPLE / "experiment.toml", tmp_path)
    return tmp_path


def ab(environment, folder, *arguments):
    path = f"workload.path={folder / 'gateway.tsv'}"
    return environment.enginecore(
        "ab", str(folder / "experiment.toml"), "--out", str(folder / "out"), "--set", path, *arguments
    )


def test_it_is_listed_with_its_components(environment):
    found, _ = environment.plugins()
    record = found["gateway-lab"]
    assert (record["status"], record["module"]) == ("active", "gateway_lab")
    assert [(each["kind"], each["name"]) for each in record["components"]] == [
        ("workload", "gateway-log"),
        ("metric", "stalled-share"),
    ]


def test_an_experiment_uses_both(environment, folder):
    done = ab(environment, folder, "--jobs", "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("In stalled-share, chunks is better than whole: ")
    result = json.loads((folder / "out" / "result.json").read_text())
    assert result["experiment"]["workload"]["kind"] == "gateway-log"
    assert [each["metric"] for each in result["comparisons"][0]["secondary"]] == ["itl_p50", "ttft_mean"]
    assert result["versions"]["gateway-lab"] == "0.1.0"


def test_mistakes_in_its_keys_and_names_are_those_of_any_component(environment, folder):
    done = ab(environment, folder, "--set", "workload.customer=chat")
    assert done.returncode == 2
    assert "'customer' is no setting here; did you mean customers" in done.stderr
    done = ab(environment, folder, "--set", "primary.metric=stalled")
    assert done.returncode == 2
    assert "primary.metric = 'stalled': no active plugin offers metric 'stalled'" in done.stderr


def test_a_blocked_plugin_is_named_where_it_is_missed(environment, folder):
    done = ab(environment, folder, "--set", 'engine.plugins.block=["gateway-lab"]')
    assert done.returncode == 2
    assert "workload.kind = 'gateway-log': no active plugin offers workload 'gateway-log'" in done.stderr
    assert "plugins.block names it" in done.stderr


def test_its_own_tests_pass(environment):
    assert "4 passed" in environment.own_tests(EXAMPLE.name)
