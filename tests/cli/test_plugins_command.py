"""`enginecore plugins`."""

import json

import pytest

from enginecore.cli import main
from enginecore.kinds import KINDS
from enginecore.settings import load_registry
from tests.registry.fake_plugins import ROUTER, ROUTER_KIND, SCHEDULER


def sections_of(out):
    """Text by name, by the first word of each heading."""
    sections: dict[str, dict[str, str]] = {}
    heading = ""
    for line in out.splitlines():
        name, _, text = line.strip().partition(" ")
        if line.startswith("  "):
            sections[heading][name] = text.strip()
        elif line:
            heading = name
            sections[heading] = {}
    return sections


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


def test_the_list_shows_status_reason_and_summaries(site, run):
    site.install("acme-good", SCHEDULER.format(name="good"), version="2.1")
    site.install("acme-broken", "raise ValueError('[bold]not markup[/bold]')")
    site.install("acme-blocked", SCHEDULER.format(name="blocked"))
    code, out, err = run("--set", 'plugins.block=["acme-blocked"]')
    assert (code, err) == (0, "")
    sections = sections_of(out)
    assert sections["scheduler"]["good"] == "(acme-good 2.1) For tests."
    assert sections["plugins"]["acme-good"] == "acme-good 2.1  active"
    assert sections["plugins"]["acme-blocked"] == "acme-blocked 1.0  blocked: plugins.block names it"
    assert sections["plugins"]["acme-broken"].endswith("failed: ValueError: [bold]not markup[/bold]")
    assert "acme_broken.py" in out  # its traceback


def names_of(section):
    """Names of a section of rows, or of one that is a list of names."""
    if not any(name.endswith(",") for name in section):
        return list(section)
    return " ".join(f"{name} {text}" for name, text in section.items()).replace(",", " ").split()


def test_components_are_listed_under_their_kind_and_fit(site, run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    site.install("acme-kinds", ROUTER_KIND.format(changes=""))
    site.install("acme-parts", ROUTER.format(name="last"))
    _, out, _ = run()
    assert max(map(len, out.splitlines())) <= 80
    assert len(out.splitlines()) < 105
    sections = sections_of(out)
    registry = load_registry()
    for kind in registry.kinds:
        assert names_of(sections[kind]) == [component.name for component in registry.components(kind)]
    assert sections["router"] == {"last": "(acme-parts 1.0) For tests."}
    assert "router  Says which engine takes a request." in out.splitlines()
    assert {"check", "ab"} <= sections["commands"].keys()


def test_one_kind_is_listed_with_its_summaries(run):
    code, out, _ = run("metric")
    assert code == 0
    [(kind, rows)] = sections_of(out).items()
    assert kind == "metric"
    assert list(rows) == [component.name for component in load_registry().components("metric")]
    assert rows["ttft_p95"] == "Time to the first token, from arrival: 95th percentile."


def test_an_unknown_kind_is_refused_with_the_closest_one(run):
    assert run("metrics") == (2, "", "error: there is no kind of component 'metrics'; did you mean metric?\n")


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
        "kinds",
        "commands",
    }
    [fcfs] = [component for component in bundled["components"] if component["name"] == "fcfs"]
    assert fcfs["kind"] == "scheduler"
    assert fcfs["summary"]
    assert fcfs["capabilities"] == ["batch_queue", "chunked_prefill", "out_of_order", "prefix_caching", "victim"]


def test_json_holds_kinds_and_commands(site, run):
    site.install("acme-kinds", ROUTER_KIND.format(changes="kit='acme.kits:ROUTERS'"))
    answer = json.loads(run("--json")[1])
    kinds = {kind["name"]: kind for kind in answer["kinds"]}
    assert list(kinds)[: len(KINDS)] == [kind.name for kind in KINDS]
    assert kinds["router"] == {
        "name": "router",
        "summary": "Says which engine takes a request.",
        "interface": "tests.registry.routers:Router",
        "table": "router",
        "default": "first",
        "capabilities": {"sticky": "Keeps the requests of one session together."},
        "part_of": None,
        "kit": "acme.kits:ROUTERS",
        "opens_network": False,
    }
    records = {record["entry_point"]: record for record in answer["plugins"]}
    assert records["acme-kinds"]["kinds"] == ["router"]
    [check] = [command for command in records["enginecore-conformance"]["commands"] if command["name"] == "check"]
    assert check["target"] == "enginecore_conformance.commands.check:check"
    assert check["summary"]


def test_it_works_with_settings_that_are_wrong_elsewhere(run):
    assert run("--json", "--set", "scheduler.use=nonsense", "--set", "seed=x")[0] == 0


@pytest.mark.parametrize("arguments", [["--set", "plugins.alow=[]"], ["--config", "none.toml"], ["--set", "x"]])
def test_wrong_calls_end_with_2_and_one_message(run, arguments):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert len(err.splitlines()) == 1
