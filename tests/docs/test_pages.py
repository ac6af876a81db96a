"""Pages and pictures that scripts make from the code: what stands in the repository is what the scripts would make now."""

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def test_the_picture_of_the_architecture_shows_what_its_text_says():
    text = (DOCS / "architecture.dot").read_text(encoding="utf-8")
    labels = {line for label in re.findall(r'label="([^"]*)"', text) for line in label.split(r"\n")}
    picture = ElementTree.parse(DOCS / "architecture.svg")
    drawn = {element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")}
    assert drawn == labels, "run `make docs`"


@pytest.mark.model
def test_the_reading_path_is_the_one_that_a_request_takes():
    script = ROOT / "benchmarks" / "reading_path.py"
    outcome = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, timeout=240)
    assert outcome.returncode == 0, outcome.stderr
