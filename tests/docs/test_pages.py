"""Pages and pictures that are made from the code or from a text are up to date."""

import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from xml.etree import ElementTree

import pytest

from enginecore.core import EngineCore

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def test_the_picture_of_the_architecture_shows_what_its_text_says():
    text = (DOCS / "architecture.dot").read_text(encoding="utf-8")
    labels = {line for label in re.findall(r'label="([^"]*)"', text) for line in label.split(r"\n")}
    picture = ElementTree.parse(DOCS / "architecture.svg")
    drawn = {element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")}
    assert drawn == labels, "run `make docs`"


def test_the_step_in_the_architecture_page_is_the_function():
    source = dedent(inspect.getsource(EngineCore.step))
    without_docstring = re.sub(r'\n    """.*?"""', "", source, count=1, flags=re.DOTALL)
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    assert f"```py\n{without_docstring}```" in page, (
        "copy EngineCore.step to docs/architecture.md, without its docstring"
    )


@pytest.mark.model
def test_the_reading_path_is_the_one_that_a_request_takes():
    if shutil.which("cc") is None:
        pytest.skip("the page shows the path through the C kernels, and there is no C compiler")
    script = ROOT / "benchmarks" / "reading_path.py"
    outcome = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True)
    assert outcome.returncode == 0, outcome.stderr
