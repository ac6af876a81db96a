"""The page in a browser: drawn without an error, at the width of a desk and of a phone, light and dark."""

import pytest

from enginecore_lab.report.page import render
from tests.lab.report.browser import WIDTHS, looks
from tests.lab.report.example import make_comparison, make_runs

HOSTILE = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>"
FIGURES = {"forest-0", "pairs", "ecdf-ttft", "ecdf-itl", "ecdf-e2e", "queue", "kv", "batch-0", "batch-1"}
FIGURES |= {"tenants-0", "tenants-1", "worst-0", "worst-1"}


@pytest.fixture(scope="module")
def page():
    arms = ("fcfs", HOSTILE)
    comparison = make_comparison(arms, name="x" * 300, warnings=["y" * 300], sentence=f"{HOSTILE} is better.")
    return render(comparison, make_runs(arms, num_requests=60, tenants=("alpha", "</script>" + HOSTILE, "z" * 120)))


@pytest.fixture(scope="module")
def looked(page, tmp_path_factory):
    """By colour scheme and width."""
    folder = tmp_path_factory.mktemp("browser")
    return {scheme: looks(page, folder / scheme, scheme) for scheme in ("light", "dark")}


@pytest.fixture(params=[(scheme, width) for scheme in ("light", "dark") for width in WIDTHS], ids=str)
def look(request, looked):
    scheme, width = request.param
    return looked[scheme][width]


def test_nothing_goes_wrong_and_nothing_is_loaded(look):
    assert look["seen"] == []


def test_every_picture_is_there_and_shows_something(look):
    assert {plot["id"] for plot in look["plots"]} == FIGURES
    assert [plot["id"] for plot in look["plots"] if not plot["marks"]] == []
    assert look["drawn"].split()[1] == str(len(FIGURES))


def test_the_page_never_scrolls_sideways(look):
    assert look["overflow"] == [0, 0]
    assert all(200 < plot["width"] < look["width"] for plot in look["plots"])


def test_names_are_shown_to_the_letter(look):
    assert look["hacked"] == "no"
    assert look["sentence"] == f"{HOSTILE} is better."
    words = {plot["id"]: plot["words"] for plot in look["plots"]}
    assert HOSTILE in words["queue"]
    assert f"</script>{HOSTILE}" in words["tenants-0"]


def test_axes_name_their_units(look):
    words = {plot["id"]: plot["words"] for plot in look["plots"]}
    assert "time (s)" in words["queue"]
    assert "baseline: ttft_mean (ms)" in words["pairs"]
    assert "time since arrival (s)" in words["worst-0"]
    assert " ms" in words["ecdf-ttft"]


@pytest.mark.parametrize("width", WIDTHS)
def test_light_and_dark_differ_in_page_and_pictures(looked, width):
    light, dark = looked["light"][width], looked["dark"][width]
    assert light["background"] != dark["background"]
    assert light["ink"] != dark["ink"]
    assert (light["drawn"].split()[0], dark["drawn"].split()[0]) == ("light", "dark")
