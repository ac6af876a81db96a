"""Every policy has a page that says what it decides, when to use it, what it costs others, its settings, its source."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from enginecore.assembly import build_engine_core
from enginecore.clock import VirtualClock
from enginecore.settings import load_settings
from enginecore_schedulers import enginecore_components

FOLDER = Path(__file__).parents[2] / "docs" / "policies"
COMPONENTS = {each.name: each for each in enginecore_components() if each.kind == "scheduler"}
PAGES = sorted(FOLDER.glob("*.md"))
SNIPPET = re.compile(r"^```toml engine.toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ON_ORACLE = {"executor": {"use": "oracle"}, "num_kv_blocks": 512}


def test_every_policy_has_a_page_and_no_other_has():
    assert {page.stem for page in PAGES} == {*COMPONENTS, "README"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_its_settings_file_makes_an_engine(page, tmp_path):
    (text,) = SNIPPET.findall(page.read_text())
    (tmp_path / "engine.toml").write_text(text)
    loaded = load_settings(ON_ORACLE, config_file=tmp_path / "engine.toml", environ={})
    core = build_engine_core(loaded, VirtualClock())
    assert core.info.components["scheduler"] == tomllib.loads(text)["scheduler"]["use"]
    core.shutdown()


@pytest.mark.parametrize("name", sorted(COMPONENTS))
def test_it_says_what_there_is_to_say(name):
    page, component = (FOLDER / f"{name}.md").read_text(), COMPONENTS[name]
    for part in ("What it decides", "When to use it", "What it costs others", "Source"):
        assert f"\n**{part}.**" in page
    settings = re.findall(r"^\| `(\w+)` \| (\S+) \| .+ \|$", page, re.MULTILINE)
    fields = component.settings.model_fields
    assert [setting for setting, _ in settings] == list(fields)
    for setting, default in settings:
        assert fields[setting].default == (None if default == "none" else json.loads(default))
    assert re.search(r"\b(19|20)\d\d\b", page.partition("**Source.**")[2]), "the source has no year"
    assert f'\n[scheduler]\nuse = "{name}"\n' in "\n" + SNIPPET.findall(page)[0]
    if fields:
        assert set(tomllib.loads(SNIPPET.findall(page)[0])["scheduler"][name]) == set(fields)


@pytest.mark.parametrize("name", sorted(COMPONENTS))
def test_the_class_says_where_the_idea_is_from(name):
    doc = COMPONENTS[name].factory._policy.__doc__  # type: ignore[attr-defined]
    assert re.search(r"\b(19|20)\d\d\b", doc)
    assert all(setting in doc for setting in COMPONENTS[name].settings.model_fields)
    assert len(COMPONENTS[name].summary) <= 120


def test_links_lead_somewhere_and_the_overview_names_all():
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (FOLDER / target).exists(), f"{page.name} links to {target}"
    overview = (FOLDER / "README.md").read_text()
    assert all(f"[`{name}`]({name}.md)" in overview for name in COMPONENTS)


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("priority", "ageing", -1.0),
        ("priority", "preemptive", "yes"),
        ("static_batch", "batch_size", 0),
        ("static_batch", "max_delay", -0.5),
        ("sjf", "ageing", float("nan")),
        ("sjf", "prompt_weight", -1.0),
        ("srpt", "margin", -1.0),
        ("srpt", "lease", 0),
        ("mlfq", "quantum", 0),
        ("mlfq", "levels", 1),
        ("mlfq", "patience", 0.0),
        ("vtc", "output_weight", 0.0),
        ("vtc", "shares", {"a": 0.0}),
        ("edf", "ttft", 0.0),
        ("edf", "missed", "drop"),
        ("edf", "late_every", 0),
        ("lpm", "window", 0),
        ("lpm", "patience", 0),
        ("gittins", "displacements", -1),
        ("fcfs", "prefill_chunk_size", 0),
        ("prefill_first", "chunk", 1),
    ],
)
def test_a_wrong_setting_is_refused(name, setting, value):
    with pytest.raises(Exception, match=setting):
        load_settings({**ON_ORACLE, "scheduler": {"use": name, name: {setting: value}}}, environ={})
