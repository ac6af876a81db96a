"""`docs/write_a_scheduling_policy.md`, followed line by line in an environment of its own.

Shell lines run one after another, and `cd` counts for what follows. A block of text is lines that the block before it
printed; a shell block that is marked as `fails` has to.
"""

import os
import subprocess
from pathlib import Path

import pytest

from tests.docs.test_snippets import ROOT, Snippet, snippets
from tests.plugins.environment import make_venv

PAGE = ROOT / "docs" / "write_a_scheduling_policy.md"
SCRIPTS = {"pip": "pip", "pytest": "pytest -p no:cacheprovider", "enginecore": "enginecore.cli"}
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


class Newcomer:
    """Somebody who follows a page."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        self.python = make_venv(folder / "venv", with_enginecore=True)
        for name, module in SCRIPTS.items():
            script = self.python.parent / name
            script.write_text(f'#!/bin/sh\nexec "{self.python}" -m {module} "$@"\n')
            script.chmod(0o755)
        clean = {key: value for key, value in os.environ.items() if not key.startswith("ENGINECORE_")}
        self.environ = (
            clean | OFFLINE | {"PATH": f"{self.python.parent}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "200"}
        )
        self.printed = ""

    def follow(self, snippet: Snippet) -> None:
        if snippet.language == "text":
            missing = [line for line in snippet.text.splitlines() if line != "..." and line not in self.printed]
            assert not missing, f"{missing} is not in\n{self.printed}"
        elif snippet.language == "sh":
            for line in snippet.text.splitlines():
                self.call(line, fails=snippet.file == "fails")
        elif snippet.file:
            (self.folder / snippet.file).write_text(snippet.text)
        else:
            self.run([str(self.python), "-c", snippet.text])

    def call(self, line: str, *, fails: bool) -> None:
        if line.startswith("cd "):
            self.folder /= line.removeprefix("cd ")
        else:
            self.run(["bash", "-c", line], fails=fails)

    def run(self, command: list[str], *, fails: bool = False) -> None:
        done = subprocess.run(command, cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=240)
        assert (done.returncode != 0) == fails, f"{command}\n{done.stdout}\n{done.stderr}"
        self.printed = done.stdout


def test_a_newcomer_gets_a_package_that_is_installed_checked_and_running(tmp_path):
    newcomer = Newcomer(tmp_path)
    for snippet in snippets(PAGE):
        newcomer.follow(snippet)
    assert newcomer.folder.name == "least-work"


def test_what_the_command_writes_passes_its_own_tests_untouched(tmp_path):
    newcomer = Newcomer(tmp_path)
    checks = "pytest -q -k 'short_ones_pass or setting or wait_is_bounded'"  # of the contract, a little
    for line in ("enginecore new scheduler untouched", "cd untouched", "pip install -e '.[test]'", checks):
        newcomer.call(line, fails=False)
    assert "4 passed" in newcomer.printed


@pytest.mark.parametrize(
    "what", ["enginecore new scheduler", "pip install -e", "enginecore check scheduler:", "pytest"]
)
def test_the_page_has_what_a_newcomer_needs(what):
    assert any(what in snippet.text for snippet in snippets(PAGE) if snippet.language == "sh")
