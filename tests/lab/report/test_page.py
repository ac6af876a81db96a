"""The page as text: self-contained, escaped, the same each time, and whole whatever the comparison lacks."""

import json
import os
import re
import subprocess
import sys
from hashlib import sha256
from html.parser import HTMLParser
from math import inf, nan
from pathlib import Path

import msgspec
import plotly.graph_objects
import plotly.offline
import pytest

import enginecore_lab.report
from enginecore_lab.report import write_html
from enginecore_lab.report.page import render
from enginecore_lab.workload import Workload
from tests.lab.report.example import make_comparison, make_run, make_runs, make_workload

MINUS = "\N{MINUS SIGN}"
STYLE = (Path(enginecore_lab.report.__file__).parent / "assets" / "report.css").read_text(encoding="utf-8")


class Elements(HTMLParser):
    """All elements with their attributes, all words outside of scripts and styles, and the scripts."""

    def __init__(self, page):
        super().__init__()
        self.elements = []
        self.words = ""
        self.scripts = []
        self._within = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._within = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._within = ""

    def handle_data(self, data):
        if self._within == "script":
            self.scripts[-1] += data
        elif self._within != "style":
            self.words += data

    def ids(self):
        return [attributes["id"] for _, attributes in self.elements if "id" in attributes]


def figures_of(page):
    text = next(script for script in Elements(page).scripts if script.startswith("{"))
    return json.loads(text, parse_constant=lambda constant: pytest.fail(f"{constant} is no JSON"))


@pytest.fixture(scope="module")
def runs():
    return make_runs(num_requests=60)


@pytest.fixture(scope="module")
def page(runs):
    return render(make_comparison(warnings=["Mind <the> gap."]), runs)


def test_it_says_all_that_was_found_and_what_repeats_it(page):
    words = " ".join(Elements(page).words.split())
    comparison = make_comparison()
    for expected in (
        comparison.sentence,
        "Mind <the> gap.",
        f"{MINUS}18.0 %",
        "ttft_mean: 392 ms → 322 ms, lower is better",
        f"{MINUS}21.0 % to {MINUS}15.0 %",
        "95 % CI",
        "paired t",
        "2,264 tokens/s",
        "One replicate of three tenants: 60 requests",
        "2 of 60",
        "error: out of <memory>",
        "scheduler.max_num_seqs",
        "components.scheduler",
        "enginecore ab experiment.toml --seed 7",
        '"kind": "synthetic"',
        comparison.workload_hashes[19],
        "3.11.2",
        comparison.created,
        *(metric.reason for metric in comparison.comparisons[0].secondary),
    ):
        assert expected in words


def test_what_differs_between_arms_stands_apart(page):
    found = page.partition("What differs")[2].partition("</table>")[0]
    assert "scheduler.use" in found
    assert "max_num_seqs" not in found


def test_nothing_is_loaded_from_anywhere(page):
    own = page.replace(plotly.offline.get_plotlyjs(), "")
    elements = Elements(own).elements
    assert not [element for element in elements if {"src", "href", "srcset", "action", "data"} & set(element[1])]
    assert not {tag for tag, _ in elements} & {"link", "iframe", "object", "embed", "base", "img"}
    assert not re.search(r"https?://|@import|url\(|fetch\(|XMLHttpRequest|WebSocket|import\(", own)
    policy = next(given["content"] for tag, given in elements if "http-equiv" in given)
    assert policy.startswith("default-src 'none'; ")
    assert "http" not in policy


def test_names_never_become_markup():
    hostile = "<script>alert(1)</script>\"'`{{ 7 * 7777 }}${1}<img src=x onerror=alert(1)>"
    arms = ("fcfs", hostile)
    comparison = make_comparison(arms, name=hostile, sentence=hostile, warnings=[hostile])
    comparison = msgspec.structs.replace(
        comparison, command=hostile, experiment={hostile: hostile}, versions={hostile: hostile}
    )
    runs = make_runs(arms, num_requests=20, tenants=(hostile, "b"), name=hostile)
    page = render(comparison, runs)
    found = Elements(page)
    assert [tag for tag, _ in found.elements if tag == "script"] == ["script"] * 3
    assert not [tag for tag, _ in found.elements if tag == "img"]
    assert found.words.count(hostile) > 10
    assert "54439" not in found.words
    shown = figures_of(page)["queue"]["data"][1]["name"]
    assert shown.startswith("&lt;script&gt;")


def test_the_same_comparison_gives_the_same_page_whatever_the_hash_seed(page):
    program = (
        "import sys; from hashlib import sha256; from tests.lab.report.example import *;"
        "from enginecore_lab.report.page import render;"
        "page = render(make_comparison(warnings=['Mind <the> gap.']), make_runs(num_requests=60));"
        "print(sha256(page.encode()).hexdigest())"
    )
    path = os.pathsep.join(filter(None, [*sys.path, str(Path(__file__).parents[3])]))
    environment = os.environ | {"PYTHONHASHSEED": "77", "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == sha256(page.encode()).hexdigest()


def test_pictures_are_what_plotly_knows(page):
    figures = figures_of(page)
    known = re.sub(r"var\(--[a-z0-9-]+\)", "#123456", json.dumps(figures))
    for id, figure in json.loads(known).items():
        plotly.graph_objects.Figure(figure)  # raises for every property that it does not know
        assert Elements(page).ids().count(id) == 1


def test_every_colour_of_a_picture_is_in_both_schemes(page):
    used = set(re.findall(r"var\(--([a-z0-9-]+)\)", json.dumps(figures_of(page)) + page.partition("<script")[0]))
    light, dark = _schemes()
    assert used <= set(light)
    assert set(light) == set(dark)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_can_be_read(scheme):
    colours = _schemes()[scheme]
    for name in ("ink", "muted", "accent", "better", "worse", "equivalent", "undecided", "refused"):
        for ground in ("panel", "page"):
            assert _contrast(colours[name], colours[ground]) >= 4.5, (name, ground)
    for name in (name for name in colours if name.startswith(("arm-", "tenant-", "prefill", "decode", "preempted"))):
        assert _contrast(colours[name], colours["panel"]) >= 3, name


def _schemes():
    light, _, dark = STYLE.partition("@media (prefers-color-scheme: dark)")
    return [dict(re.findall(r"--([a-z0-9-]+): ([^;]+);", part)) for part in (light, dark)]


def _contrast(one, other):
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


class TestForest:
    def forest(self, comparison):
        return figures_of(render(comparison, {}))["forest-0"]

    def test_it_shows_relative_differences_with_interval_and_margin(self):
        comparison = make_comparison()
        figure = self.forest(comparison)
        primary = comparison.comparisons[0].primary
        low, estimate, high = figure["data"][0]["x"]
        assert estimate == primary.relative
        assert low == pytest.approx(primary.relative - 0.03)
        assert high == pytest.approx(primary.relative + 0.03)
        assert figure["layout"]["shapes"][0]["x1"] == pytest.approx(0.02)
        assert [trace["line"]["color"] for trace in figure["data"]][:2] == ["var(--better)", "var(--worse)"]
        assert "ttft_mean</b> ↓" in figure["layout"]["annotations"][0]["text"]

    def test_what_is_far_off_is_an_arrow_at_the_edge(self):
        figure = self.forest(make_comparison())
        refused = figure["data"][6]
        assert refused["marker"]["symbol"][1] == "triangle-right"
        assert refused["x"][1] == figure["layout"]["xaxis"]["range"][1]

    def test_what_has_no_relative_difference_is_named_instead(self):
        page = render(make_comparison(), {})
        assert len(figures_of(page)["forest-0"]["data"]) == 7
        assert "Not drawn, for want of a finite baseline other than 0: preemptions." in Elements(page).words

    def test_all_arms_share_one_axis(self):
        figures = figures_of(render(make_comparison(("a", "b", "c")), {}))
        assert figures["forest-0"]["layout"]["xaxis"]["range"] == figures["forest-1"]["layout"]["xaxis"]["range"]


def test_pairs_that_are_infinite_are_not_drawn():
    comparison = make_comparison()
    primary = comparison.comparisons[0].primary
    broken = msgspec.structs.replace(
        primary, candidate=[inf, *primary.candidate[1:]], margin=inf, relative=nan, interval=None, verdict="refused"
    )
    arm = msgspec.structs.replace(comparison.comparisons[0], primary=broken)
    page = render(msgspec.structs.replace(comparison, comparisons=[arm]), {})
    assert len(figures_of(page)["pairs"]["data"][2]["x"]) == 19
    assert "infinite" in Elements(page).words


def test_without_runs_there_are_the_verdicts_pictures_only():
    assert set(figures_of(render(make_comparison(), {}))) == {"forest-0", "pairs"}


def test_an_arm_without_a_run_has_none_of_its_pictures(runs):
    figures = figures_of(render(make_comparison(), {"sjf": runs["sjf"]}))
    assert "worst-1" in figures
    assert "worst-0" not in figures


def test_one_tenant_needs_no_picture_of_tenants():
    page = render(make_comparison(), make_runs(num_requests=20, tenants=("",)))
    assert "tenants-0" not in figures_of(page)
    assert "<h2>Tenants</h2>" not in page


def test_one_arm_alone_has_nothing_to_compare():
    page = render(make_comparison(("fcfs",), sentence="One arm."), {})
    assert figures_of(page) == {}
    assert "nothing to compare it with" in page


def test_a_run_in_which_nothing_happened_is_shown_as_such():
    empty = make_run(Workload(name="nothing", requests=[]))
    assert "ecdf-ttft" in figures_of(render(make_comparison(), {"fcfs": empty, "sjf": empty}))


def test_a_run_of_an_unknown_arm_is_refused(runs):
    with pytest.raises(ValueError, match=r"runs of \['lifo'\] belong to no arm: the comparison has \['fcfs', 'sjf'\]"):
        render(make_comparison(), {"lifo": runs["fcfs"]})


def test_runs_of_different_workloads_are_refused(runs):
    other = make_run(make_workload(num_requests=10))
    with pytest.raises(ValueError, match="different workloads"):
        render(make_comparison(), {"fcfs": runs["fcfs"], "sjf": other})


def test_a_long_run_is_thinned(tmp_path):
    few = make_runs(num_requests=60)
    many = make_runs(num_requests=1500)
    path = tmp_path / "report.html"
    sizes = []
    for runs in (few, many):
        write_html(make_comparison(), runs, path)
        sizes.append(path.stat().st_size - len(plotly.offline.get_plotlyjs().encode()))
    assert sum(len(run.steps.step) for run in many.values()) > 10_000
    assert sizes[1] < 1.5 * sizes[0]
    assert path.stat().st_size < 6_000_000
