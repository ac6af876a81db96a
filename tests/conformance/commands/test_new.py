"""`enginecore new`. `tests.docs` shows that what it writes can be installed, checked and run."""

import tomllib

import pytest

from enginecore.cli import main
from enginecore.settings import load_settings
from enginecore_conformance.workloads import BrickWorkload
from tests.equivalence.engines import OracleEngine
from tests.registry.fake_plugins import SCHEDULER


@pytest.fixture
def new(capsys, monkeypatch, tmp_path):
    """Runs the command in an empty folder; returns exit code, stdout and stderr."""
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def new(*arguments):
        with pytest.raises(SystemExit) as exit:
            main(["new", *arguments])
        captured = capsys.readouterr()
        return exit.value.code or 0, captured.out, captured.err

    return new


def written(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_it_writes_a_package_and_says_what_comes_next(new, tmp_path):
    code, out, err = new("scheduler", "least-work")
    assert (code, err) == (0, "")
    for line in ("cd least-work", "pip install -e '.[test]'", "enginecore check scheduler:least-work", "pytest"):
        assert f"\n  {line}\n" in out
    folder = tmp_path / "empty" / "least-work"
    assert written(folder) == {
        "README.md",
        "engine.toml",
        "least_work.py",
        "pyproject.toml",
        "tests/test_least_work.py",
    }
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["name"] == "least-work"
    assert project["entry-points"] == {"enginecore.plugins.v1": {"least-work": "least_work"}}
    assert "{" not in (folder / "README.md").read_text()


def test_what_it_writes_is_a_policy_that_works(new, tmp_path, monkeypatch):
    new("scheduler", "least_work2")
    monkeypatch.syspath_prepend(str(tmp_path / "empty" / "least_work2"))
    component = __import__("least_work2").COMPONENT
    assert (component.kind, component.name) == ("scheduler", "least_work2")
    assert component.summary == "In order of arrival, but a long prompt lets those pass that arrive a little later."

    file = tmp_path / "empty" / "least_work2" / "engine.toml"
    table = load_settings(config_file=file, components=[component], environ={}).settings.component("scheduler")
    assert (table.name, table.settings.seconds_per_token) == ("least_work2", 0.01)

    engine = OracleEngine(components=[component], block_size=4, num_kv_blocks=70, **{"scheduler.use": "least_work2"})
    engine.add(*BrickWorkload(seed=1, block_size=4).requests(12))
    engine.run()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Least-Work", "must begin with a letter and be of lower-case letters and digits"),
        ("least--work", "in parts joined by single '-' or '_'"),
        ("../work", "cannot be the name of a package"),
        ("2fast", "must begin with a letter"),
        ("fcfs", "is the name of a scheduler that is installed, 'fcfs'"),
        ("static-batch", "is the name of a scheduler that is installed, 'static_batch'"),
        ("use", "this name is reserved"),
        ("queue", "would make a module queue, which Python itself has a use for"),
        ("class", "would make a module class, which Python itself has a use for"),
        ("request-view", "would make a class RequestView, as the toolkit has one"),
        ("enginecore-mine", "begins as the packages of enginecore itself do"),
        ("pytest", "would make a module pytest, and one of that name is installed"),
    ],
)
def test_a_name_that_will_not_do_is_refused_in_a_sentence(new, tmp_path, name, reason):
    code, out, err = new("scheduler", name)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: '{name}' ")
    assert reason in err
    assert len(err.splitlines()) == 1
    assert not written(tmp_path / "empty")


def test_the_name_of_an_installed_scheduler_of_somebody_else_is_refused(new, site):
    site.install("acme-mine", SCHEDULER.format(name="mine"))
    assert "is the name of a scheduler that is installed, 'mine'" in new("scheduler", "mine")[2]


def test_nothing_is_overwritten(new, tmp_path):
    folder = tmp_path / "empty" / "least-work"
    folder.mkdir()
    assert new("scheduler", "least-work") == (
        2,
        "",
        "error: least-work exists already: choose another name, or remove it first\n",
    )
    assert not written(folder)


def test_a_kind_without_a_template_names_those_with_one(new):
    assert new("scheduller", "x") == (2, "", "error: there is no template for 'scheduller'; did you mean scheduler?\n")
    assert new("executor", "x")[2] == "error: there is no template for 'executor'; there are templates for: scheduler\n"
