"""The project's own format: written, read, and what is said of bad lines."""

import json
from codecs import BOM_UTF8
from typing import Any

import pytest

from enginecore.errors import ConfigurationError
from enginecore_lab.workloads import workload_hash
from enginecore_lab.workloads.loaders import load_jsonl, save_jsonl
from tests.lab.workloads.making import POISSON, asked, ids, synthetic, workload


@pytest.mark.parametrize(
    "made",
    [
        synthetic(arrivals=POISSON, tenants=[{"name": "a", "priority": 2, "ttft_slo": 0.5}, {"name": "b"}]),
        synthetic(arrivals=POISSON, sessions={"think_time": {"kind": "exponential", "mean": 3}}),
        synthetic(prefix={"levels": [{"branches": 2, "tokens": 32}]}, closed={"concurrency": 4, "think_time": 0.5}),
        workload(asked("ü/1", 0.1, tpot_slo=0.05, priority=-0.5, session="s", turn=3)),
    ],
)
def test_what_is_written_is_read(tmp_path, made):
    path = tmp_path / "workload.jsonl"
    save_jsonl(made, path)
    read = load_jsonl(path)
    assert read == made
    path.write_bytes(BOM_UTF8 + path.read_bytes().replace(b"\n", b"\r\n"))  # as some editors save it
    assert load_jsonl(path) == made
    assert workload_hash(read) == workload_hash(made)


def load(tmp_path, *lines):
    path = tmp_path / "own.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return load_jsonl(path)


def line(name: Any, when: Any = 0, **fields: Any) -> dict[str, Any]:
    return {"id": name, "arrival_s": when, "prompt_tokens": 40, "output_tokens": 4, **fields}


def turn(name, after, **fields):
    return {"id": name, "after": after, "prompt_tokens": 40, "output_tokens": 4, **fields}


def test_a_header_is_not_needed(tmp_path):
    made = load(tmp_path, line("b", 2), line("a", 1, hash_ids=[5, 6], block_size=32))
    assert (made.name, made.loop, made.block_size) == ("own", "open", 32)
    assert made.requests == [asked("a", 1.0, 40, 4, hash_ids=(5, 6)), asked("b", 2.0, 40, 4)]


def test_times_are_kept_as_they_are(tmp_path):
    assert load(tmp_path, line("a", 7.5)).requests[0].arrival == 7.5


def test_turns_stand_behind_what_they_wait_for(tmp_path):
    made = load(tmp_path, line("b", 2), line("a", 1), turn("b1", "b", delay_s=3), turn("a1", "a"), turn("a2", "a1"))
    assert ids(made) == ["a", "a1", "a2", "b", "b1"]
    assert made.loop == "partly open"
    assert (made.requests[4].after, made.requests[4].delay) == ("b", 3.0)


def test_what_is_empty_is_left_out_with_all_that_waits_for_it(tmp_path):
    path = tmp_path / "own.jsonl"
    lines = [line("a", output_tokens=0), turn("a1", "a"), line("b")]
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    assert ids(load_jsonl(path, drop_empty=True)) == ["b"]
    with pytest.raises(ConfigurationError, match="line 1: output_tokens must be a whole number of at least 1, got 0"):
        load_jsonl(path)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "holds no requests"),
        ([{"workload": "x"}], "holds no requests"),
        ([line("a", tenent="x")], "line 1: 'tenent' is no field of it; did you mean tenant"),
        ([{"workload": "x", "lop": "open"}, line("a")], "line 1: 'lop' is no field of it; did you mean loop"),
        ([line("a"), line("a")], "line 2: id must be different in every line, got 'a'"),
        ([line(3)], "line 1: id must be text, got 3"),
        ([turn("a1", "a"), line("a")], "line 1: after must be the id of a line before it, got 'a'"),
        ([line("a", hash_ids=[1])], "line 1: block_size must be given, got None"),
        (
            [line("a", hash_ids=[1], block_size=16), line("b", hash_ids=[1], block_size=32)],
            "line 2: block_size must be 16 as in lines before it, got 32",
        ),
        ([line("a", hash_ids=[1, 2, 3, 4], block_size=16)], "hash_ids must be at most 3: 44 tokens in blocks of 16"),
        ([{"workload": "x", "loop": "ajar"}, line("a")], "line 1: loop must be 'open' or 'closed', got 'ajar'"),
        (
            [{"workload": "x", "loop": "open"}, line("a"), turn("b", "a")],
            "loop must be 'partly open', since turns wait",
        ),
        ([{"workload": "x", "loop": "closed"}, line("a")], "line 1: concurrency must be given"),
        ([line("a", "soon")], "line 1: arrival_s must be a finite number of at least 0, got 'soon'"),
        ([line("a", slo_ttft=-1)], "line 1: slo_ttft must be a finite number of at least 0, got -1"),
    ],
)
def test_bad_lines_are_named(tmp_path, lines, message):
    with pytest.raises(ConfigurationError, match=message):
        load(tmp_path, *lines)
