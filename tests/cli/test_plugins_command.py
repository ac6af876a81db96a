"""`enginecore plugins`."""

import json

import pytest

from enginecore.cli import main
from tests.registry.fake_plugins import SCHEDULER


@pytest.fixture
def run(capsys, monkeypatch):
    """Runs the command; returns exit code, stdout and stderr."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments):
        with pytest.raises(SystemExit) as exit:
            main(["plugins", *arguments])
        captured = capsys.readouterr()
        return exit.value.code or 0, captured.out, captured.err

    return run


def test_the_table_shows_status_reason_and_summaries(site, run):
    site.install("acme-good", SCHEDULER.format(name="good"), version="2.1")
    site.install("acme-broken", "raise ValueError('[bold]not markup[/bold]')")
    site.install("acme-blocked", SCHEDULER.format(name="blocked"))
    code, out, err = run("--set", 'plugins.block=["acme-blocked"]')
    assert (code, err) == (0, "")
    [good] = [line for line in out.splitlines() if "acme-good" in line]
    assert "acme-good 2.1" in good
    assert "active" in good
    assert "scheduler good: For tests." in good
    [blocked] = [line for line in out.splitlines() if "acme-blocked" in line]
    assert "blocked: plugins.block names it" in blocked
    assert "failed: ValueError: [bold]not markup[/bold]" in out
    assert "acme_broken.py" in out  # its traceback


def test_conflicts_are_shown(site, run):
    site.install("acme-one", SCHEDULER.format(name="mine"))
    site.install("acme-two", SCHEDULER.format(name="mine"))
    _, out, _ = run()
    assert "conflict: scheduler 'mine' is offered by plugin 'acme-one'" in " ".join(out.split())


def test_json_holds_all_that_is_known(run):
    code, out, _ = run("--json")
    assert code == 0
    records = {record["entry_point"]: record for record in json.loads(out)["plugins"]}
    bundled = records["enginecore-schedulers"]
    assert bundled.keys() == {
        "entry_point",
        "module",
        "distribution",
        "version",
        "status",
        "reason",
        "traceback",
        "components",
    }
    [fcfs] = [component for component in bundled["components"] if component["name"] == "fcfs"]
    assert fcfs["kind"] == "scheduler"
    assert fcfs["summary"]
    assert fcfs["capabilities"] == ["batch_queue", "chunked_prefill", "out_of_order", "prefix_caching", "victim"]


def test_it_works_with_settings_that_are_wrong_elsewhere(run):
    assert run("--json", "--set", "scheduler.use=nonsense", "--set", "seed=x")[0] == 0


@pytest.mark.parametrize("arguments", [["--set", "plugins.alow=[]"], ["--config", "none.toml"], ["--set", "x"]])
def test_wrong_calls_end_with_2_and_one_message(run, arguments):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert len(err.splitlines()) == 1
