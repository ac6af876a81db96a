"""Commands of the engine and of plugins: how they are listed and found, and what a broken one costs."""

import subprocess
import sys

import pytest

from enginecore.cli import main
from enginecore.commands import COMMANDS
from enginecore.registry import Registry
from tests.registry.fake_plugins import SCHEDULER, names, record_of

OFFER = """
from enginecore.plugin import Command, hookimpl

WORDS = dict(name="greet", target="{target}", summary="Greets whom it may concern.")


@hookimpl
def enginecore_commands():
    return [Command(**(WORDS | dict({changes})))]
"""

FUNCTION = """
import typer


def greet(name: str, loud: bool = False) -> None:
    text = f"hello {name}"
    typer.echo(text.upper() if loud else text)
"""

APP = """
import typer

app = typer.Typer()


@app.command()
def greet(name: str) -> None:
    typer.echo(f"hello {name}")


@app.command()
def leave() -> None:
    typer.echo("good-bye")
"""


@pytest.fixture
def run(capsys, monkeypatch):
    """Runs the command line; returns exit code, stdout and stderr."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments):
        with pytest.raises(SystemExit) as exit:
            main(arguments)
        captured = capsys.readouterr()
        return exit.value.code or 0, captured.out, captured.err

    return run


def install(site, distribution, source=FUNCTION, target=None, changes=""):
    """A plugin with the command `greet`, and its module."""
    module = distribution.replace("-", "_") + "_command"
    (site.path / f"{module}.py").write_text(source)
    site.install(distribution, OFFER.format(target=target or f"{module}:greet", changes=changes))
    return module


def test_help_lists_commands_by_plugin_and_imports_none_of_them(site, run):
    module = install(site, "acme")
    code, out, err = run("--help")
    assert (code, err) == (0, "")
    listed = [line.strip("│ ").partition("  ") for line in out.splitlines() if line.startswith("│")]
    summaries = {name.strip(): summary.strip() for name, _, summary in listed}
    assert {command.name: command.summary for command in COMMANDS}.items() <= summaries.items()
    assert {"ab", "replay", "capacity", "sweep", "calibrate", "check", "new"} <= summaries.keys()
    assert summaries["greet"] == "Greets whom it may concern."
    assert out.index("Commands of enginecore-lab") < out.index(" ab ") < out.index("Commands of acme")
    assert module not in sys.modules


def test_a_function_is_a_command(site, run):
    install(site, "acme")
    assert run("greet", "you") == (0, "hello you\n", "")
    assert run("greet", "you", "--loud") == (0, "HELLO YOU\n", "")
    code, out, _ = run("greet", "--help")
    assert (code, "Usage: enginecore greet" in out, "--loud" in out) == (0, True, True)
    code, _, err = run("greet")
    assert (code, "Missing argument" in err) == (2, True)


def test_an_app_brings_commands_of_its_own(site, run):
    install(site, "acme", APP, target="acme_command:app")
    assert run("greet", "greet", "you") == (0, "hello you\n", "")
    assert run("greet", "leave") == (0, "good-bye\n", "")


BROKEN = {
    "import": ("import no_such_module", None, "ModuleNotFoundError: No module named 'no_such_module'"),
    "no module": (FUNCTION, "acme_gone:greet", "ModuleNotFoundError: No module named 'acme_gone'"),
    "attribute": (FUNCTION, "acme_command:wave", "AttributeError: module 'acme_command' has no attribute 'wave'"),
    "exit": ("raise SystemExit(0)", None, "SystemExit: 0"),
    "no function": ("greet = 3", None, "TypeError"),
    "odd argument": ("def greet(name: 'Nowhere') -> None: ...", None, "NameError"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_command_that_cannot_be_loaded_costs_itself_alone(site, run, case):
    source, target, reason = BROKEN[case]
    install(site, "acme", source, target)
    code, out, err = run("greet", "you")
    assert (code, out) == (2, "")
    assert err.startswith("error: command 'greet' of plugin 'acme' of distribution acme 1.0 cannot be run: ")
    assert reason in err
    assert len(err.splitlines()) == 1
    code, out, _ = run("--help")
    assert (code, " greet " in out, " ab " in out) == (0, True, True)
    assert run("plugins")[0] == 0


def test_an_error_that_is_meant_for_users_is_said_as_it_is(site, run):
    install(
        site, "acme", "from enginecore.errors import ConfigurationError\nraise ConfigurationError('install acme[x]')"
    )
    assert run("greet", "you") == (2, "", "error: install acme[x]\n")


def test_a_failed_plugin_is_named_to_whoever_calls_its_command(site, run):
    install(site, "acme", changes="summary=''")
    code, _, err = run("greet")
    assert code == 2
    assert "error: there is no command 'greet'; did you mean generate?" in err
    assert "may bring it, but failed: plugin 'acme' of distribution acme 1.0: command 'greet': summary must be" in err
    _, out, _ = run("--help")
    assert " greet " not in out
    assert " ab " in out
    assert "acme 1.0  failed: command 'greet': summary must be one line" in run("plugins")[1]


def test_a_plugin_that_fails_by_something_else_is_known_to_have_the_command(site, run, monkeypatch):
    offer = OFFER.format(target="a:b", changes="")
    odd = SCHEDULER.format(name="mine").replace('kind="scheduler"', 'kind="sheduler"')
    site.install("acme", f"{offer}\n{odd}")
    monkeypatch.setenv("ENGINECORE_PLUGINS__BLOCK", '["enginecore-lab"]')
    _, _, err = run("greet")
    assert "would bring it, but failed: plugin 'acme' of distribution acme 1.0: component 'mine'" in err
    assert len(err.splitlines()) == 2


def test_a_blocked_plugin_is_named(site, run, monkeypatch):
    install(site, "acme")
    monkeypatch.setenv("ENGINECORE_PLUGINS__BLOCK", '["acme", "enginecore-lab"]')
    code, _, err = run("ab")
    assert code == 2
    assert "may bring it, but blocked: plugin 'enginecore-lab' of distribution enginecore" in err
    assert " greet " not in run("--help")[1]


def test_two_plugins_with_one_command_are_an_error_when_it_is_called(site, run):
    install(site, "acme-one")
    install(site, "acme-two")
    code, out, err = run("greet", "you")
    assert (code, out) == (2, "")
    assert "command 'greet' is offered by plugin 'acme-one' of distribution acme-one 1.0 and plugin 'acme-two'" in err
    _, out, _ = run("--help")
    assert "Offered by acme-one and acme-two: leave one out." in out
    assert record_of(Registry.discover(), "acme-one").status == "active"


RULES = {
    "name": ("name='Greet'", "a command has the name 'Greet'; a name is lower-case words joined by single '-'"),
    "own": ("name='generate'", "command 'generate' is the engine's own: choose another name"),
    "target": ("target='acme.command'", "command 'greet': target must be 'module:attribute', not 'acme.command'"),
    "target is a function": ("target=print", "command 'greet': target must be 'module:attribute'"),
    "summary": ("summary='two\\nlines'", "command 'greet': summary must be one line of text"),
}


@pytest.mark.parametrize("case", RULES)
def test_a_record_that_breaks_a_rule_fails_its_plugin_alone(site, case):
    changes, reason = RULES[case]
    install(site, "broken", changes=changes)
    site.install("good", SCHEDULER.format(name="good"))
    registry = Registry.discover()
    assert reason in record_of(registry, "broken").reason
    assert "good" in names(registry)


def test_one_name_twice_and_no_list_are_refused(site):
    source = OFFER.format(target="a:b", changes="")
    site.install("acme-twice", source.replace("return [Command(", "return 2 * [Command("))
    site.install("acme-one", source.replace("return [", "return (").replace("))]", ")))"))
    registry = Registry.discover()
    assert record_of(registry, "acme-twice").reason == "it offers command 'greet' twice"
    assert "enginecore_commands() must return a list of Commands" in record_of(registry, "acme-one").reason


def test_help_helps_even_if_the_environment_is_wrong(run, monkeypatch):
    monkeypatch.setenv("ENGINECORE_PLUGINS__ALOW", "[]")
    code, out, err = run("--help")
    assert (code, " generate " in out) == (0, True)
    assert "plugins.alow" in err


def test_a_misspelt_command_names_the_right_one(run):
    assert run("confg") == (2, "", "error: there is no command 'confg'; did you mean config?\n")
    assert run("replya") == (2, "", "error: there is no command 'replya'; did you mean replay?\n")


def test_the_command_comes_first(run):
    code, out, err = run("--", "ab", "x")
    assert (code, out) == (2, "")
    assert "error" in err.lower()


def test_a_command_of_the_engine_needs_no_discovery(site):
    site.install("acme", "raise SystemExit('imported')")
    script = (
        "import sys\nfrom enginecore.cli import main\n"
        "try:\n    main(['generate', '--help'])\nexcept SystemExit:\n    pass\n"
        "print(sorted({'acme', 'enginecore_lab', 'enginecore_torch', 'torch'} & set(sys.modules)), file=sys.stderr)\n"
    )
    environ = {"PYTHONPATH": str(site.path)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, env=environ)
    assert done.stderr == "[]\n"
