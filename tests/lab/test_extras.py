"""Libraries that only the lab needs."""

import subprocess
import sys

import pytest

from enginecore.errors import ConfigurationError
from enginecore_lab.extras import require


def test_what_is_installed_is_imported():
    assert require("scipy.stats").__name__ == "scipy.stats"


def test_what_is_not_is_named_with_its_cure():
    with pytest.raises(ConfigurationError, match=r"scippy is not installed.*pip install 'enginecore\[lab\]'"):
        require("scippy.stats")


def test_what_lacks_something_itself_is_not_blamed_on_the_extra(tmp_path, monkeypatch):
    (tmp_path / "half_there.py").write_text("import nowhere_to_be_found\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="nowhere_to_be_found"):
        require("half_there")


def test_reading_an_experiment_pulls_in_no_statistics():
    code = (
        "import sys; from enginecore_lab import compare, load_experiment\n"
        "print(sorted({'scipy', 'statsmodels', 'plotly', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
