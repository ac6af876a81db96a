"""A package of somebody else's that adds a kind of component, one of it, and a command; and packages that break."""

import json

import pytest

from tests.plugins.environment import Environment
from tests.registry.fake_plugins import Site

GRAMMARS = """
from abc import ABC, abstractmethod

from enginecore.plugin import Command, Component, ComponentSettings, KindSpec, hookimpl


class Grammar(ABC):
    @abstractmethod
    def accepts(self, text): ...


class Pattern(Grammar):
    def __init__(self, pattern):
        self._pattern = pattern

    def accepts(self, text):
        import re

        return re.fullmatch(self._pattern, text) is not None


class PatternSettings(ComponentSettings):
    pattern: str = "[a-z]+"


def make_pattern(settings, context):
    return Pattern(settings.pattern)


@hookimpl
def enginecore_kinds():
    return [KindSpec(name="grammar", summary="Says which texts are right.", interface=Grammar, table="grammar")]


@hookimpl
def enginecore_components():
    return [
        Component(
            kind="grammar", name="pattern", factory=make_pattern, settings=PatternSettings, summary="A pattern."
        )
    ]


@hookimpl
def enginecore_commands():
    return [Command(name="accepts", target="acme_accepts:accepts", summary="Say whether the grammar accepts a text.")]
"""

ACCEPTS = """
import typer

from enginecore.cli.options import Overrides
from enginecore.settings import load_settings, parse_overrides


def accepts(text: str, overrides: Overrides = None) -> None:
    loaded = load_settings(parse_overrides(overrides or ()))
    typer.echo("yes" if loaded.build("grammar", None).accepts(text) else "no")
"""

WRONG = """
from enginecore.plugin import Component, hookimpl


@hookimpl
def enginecore_components():
    return [Component(kind="grammar", name="wrong", factory=lambda settings, context: "no grammar")]
"""


@pytest.fixture
def environment(tmp_path):
    folder = tmp_path / "site"
    folder.mkdir()
    site = Site(folder)
    site.install("acme-grammars", GRAMMARS)
    (folder / "acme_accepts.py").write_text(ACCEPTS)
    site.install("aaa-wrong", WRONG)
    return Environment(folder, tmp_path)


def test_kind_component_and_command_work_in_a_process_of_their_own(environment):
    records, answer = environment.plugins()
    assert {record["status"] for record in records.values()} == {"active"}
    assert [kind["name"] for kind in answer["kinds"]][-1] == "grammar"
    assert "Say whether the grammar accepts a text." in environment.enginecore("--help").stdout
    choice = ["--set", "grammar.use=pattern"]
    shown = json.loads(environment.enginecore("config", "--json", *choice).stdout)
    assert shown["settings"]["grammar"] == {"use": "pattern", "pattern": {"pattern": "[a-z]+"}, "wrong": {}}
    assert environment.enginecore("accepts", "abc", *choice).stdout == "yes\n"
    digits = environment.enginecore("accepts", "abc", *choice, ENGINECORE_GRAMMAR__PATTERN__PATTERN="[0-9]+")
    assert digits.stdout == "no\n"


@pytest.mark.parametrize(
    ("settings", "code", "message"),
    [
        ([], 2, "no grammar is chosen: set the key `use` of its table"),
        (["--set", "grammar.use=patern"], 2, "no active plugin offers grammar 'patern'; did you mean pattern?"),
        (["--set", "grammar.use=wrong"], 1, "grammar 'wrong' made a str"),
        (["--set", 'plugins.block=["acme-grammars"]', "--set", "grammar.use=wrong"], 2, "grammar (argument): no such"),
    ],
)
def test_what_goes_wrong_is_said_in_a_sentence(environment, settings, code, message):
    done = environment.enginecore("accepts", "abc", *settings)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_without_the_kind_its_components_fail_and_the_command_is_gone(environment):
    blocked = {"ENGINECORE_PLUGINS__BLOCK": '["acme-grammars"]'}
    records, _ = environment.plugins(**blocked)
    assert records["aaa-wrong"]["status"] == "failed"
    assert "unknown kind 'grammar'" in records["aaa-wrong"]["reason"]
    done = environment.enginecore("accepts", "abc", **blocked)
    assert done.returncode == 2
    assert "there is no command 'accepts'" in done.stderr
    assert "plugin 'acme-grammars' of distribution acme-grammars 1.0: plugins.block names it" in done.stderr
