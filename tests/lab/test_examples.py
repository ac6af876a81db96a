"""The example experiments, small: as few short replicates as decide so many metrics."""

from pathlib import Path

import pytest

from enginecore.settings.sources import Values, file_layer
from enginecore_lab import compare, load_experiment
from enginecore_lab.comparison import ArmComparison
from tests.shared_data import shared

EXAMPLES = Path(__file__).parents[2] / "examples/experiments"
SMALL = {"replicates": 10, "window.skip_first": 0, "window.skip_last": 0}
TRACES = {
    "chunked_prefill.toml": "traces/azure_2023_conv.csv",
    "prefix_order.toml": "traces/mooncake_conversation.jsonl",
}


def small_trace(file: str) -> Values:
    return {"workload.path": str(shared(TRACES[file])), "workload.requests_per_replicate": 40}


def verdict(file: str, overrides: Values) -> ArmComparison:
    comparison = compare(load_experiment(EXAMPLES / file, SMALL | overrides)).comparison
    assert comparison.warnings == []
    return comparison.comparisons[0]


def relative(found: ArmComparison, metric: str) -> float:
    return next(each.relative for each in (found.primary, *found.secondary) if each.metric == metric)


def test_chunks_cost_time_to_first_token_and_spare_those_who_decode():
    found = verdict("chunked_prefill.toml", small_trace("chunked_prefill.toml"))
    assert found.primary.metric == "ttft_p50"
    assert found.primary.relative > 0.05
    assert relative(found, "itl_p99") < -0.2


def test_prefix_order_gives_a_verdict():
    found = verdict("prefix_order.toml", small_trace("prefix_order.toml") | {"workload.rate_scale": 0.15})
    assert found.primary.metric == "ttft_mean"
    assert found.primary.verdict in ("better", "worse", "equivalent", "undecided")


def test_fair_shares_even_out_service_and_cost_little():
    parts = file_layer(EXAMPLES / "fairness.toml").values["workload"]["parts"]
    short = [part | {"num_requests": part["num_requests"] // 8} for part in parts]
    found = verdict("fairness.toml", {"workload.parts": short})
    assert abs(found.primary.relative) < 0.2
    assert relative(found, "service_difference") < -0.5


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.toml")), ids=lambda file: file.name)
def test_examples_name_traces_as_they_were_published(file):
    assert "../" not in file.read_text()


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.toml")), ids=lambda file: file.name)
def test_examples_say_what_they_ask_and_how_to_ask_it(file):
    lines = file.read_text().splitlines()
    assert lines[0].startswith("# ")
    assert lines[0].endswith("?")
    assert lines[2].startswith(f"#     enginecore ab examples/experiments/{file.name}")
