"""Published files, as they are: small ones of each kind, and what is said of bad rows."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from enginecore.errors import ConfigurationError
from enginecore_lab.workload import Workload
from enginecore_lab.workloads import read_workload
from enginecore_lab.workloads.loaders import load_azure, load_bailian, load_burstgpt, load_mooncake
from tests.lab.workloads.making import asked, ids

AZURE_2023 = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:51.2224670,879,55
"""
AZURE_2024 = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:00.017335+00:00,2399,6
2024-05-10 00:00:01+00:00,76,15
"""
MOONCAKE = """{"timestamp": 3000, "input_length": 1030, "output_length": 5, "hash_ids": [0, 1, 2]}
{"timestamp": 6500, "input_length": 512, "output_length": 7, "hash_ids": [0]}
"""
BAILIAN = """{"chat_id": 7, "parent_chat_id": -1, "timestamp": 61.114, "input_length": 33, "output_length": 132, "type": "text", "turn": 1, "hash_ids": [1089, 1090, 6326]}
{"chat_id": 9, "parent_chat_id": 7, "timestamp": 70.114, "input_length": 40, "output_length": 2, "type": "search", "turn": 2, "hash_ids": [1089, 1090, 1090]}
{"chat_id": 11, "parent_chat_id": 9, "timestamp": 71.614, "input_length": 20, "output_length": 2, "type": "text", "turn": 3, "hash_ids": [1089]}
{"chat_id": 13, "parent_chat_id": 5, "timestamp": 71.614, "input_length": 16, "output_length": 2, "type": "image", "turn": 4, "hash_ids": [3]}
"""  # noqa: E501
BURSTGPT = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,ConversationLengths log
45,GPT-4,1087,230,1317,API log
118,GPT-4,417,0,417,ConversationLengths log
"""

Load = Callable[[Path], Workload]


@pytest.fixture
def file(tmp_path):
    def write(text: str) -> Path:
        path: Path = tmp_path / "published.txt"
        path.write_text(text)
        return path

    return write


def test_azure(file):
    made = load_azure(file(AZURE_2023))
    assert made == Workload(
        name="published",
        requests=[
            asked("0", 0.0, 374, 44),
            asked("1", 4.314579, 396, 109),
            asked("2", 4.541877, 879, 55),
        ],
    )
    later = load_azure(file(AZURE_2024))
    assert [each.arrival for each in later.requests] == [0, 0.007405, 0.99007]
    assert [(each.num_prompt_tokens, each.num_output_tokens) for each in later.requests] == [
        (2162, 5),
        (2399, 6),
        (76, 15),
    ]


def test_mooncake(file):
    assert load_mooncake(file(MOONCAKE)) == Workload(
        name="published",
        requests=[asked("0", 0.0, 1030, 5, hash_ids=(0, 1, 2)), asked("1", 3.5, 512, 7, hash_ids=(0,))],
        block_size=512,
    )


def test_bailian(file):
    made = load_bailian(file(BAILIAN))
    assert (made.block_size, made.loop) == (16, "open")
    assert [(each.request_id, each.session, each.turn) for each in made.requests] == [
        ("7", "7", 0),
        ("9", "7", 1),
        ("11", "7", 2),
        ("13", "13", 3),
    ]
    assert [each.arrival for each in made.requests] == pytest.approx([0, 9, 10.5, 10.5])
    assert made.requests[1].hash_ids == (1089, 1090, 1090)
    assert all(each.after is None for each in made.requests)


def test_burstgpt(file):
    path = file(BURSTGPT)
    with pytest.raises(
        ConfigurationError, match="line 4: Response tokens must be a whole number of at least 1, got '0'"
    ):
        load_burstgpt(path)
    assert load_burstgpt(path, drop_empty=True).requests == [asked("0", 0.0, 472, 18), asked("1", 40.0, 1087, 230)]
    assert load_burstgpt(path, drop_empty=True, models=["GPT-4"]).requests == [asked("1", 0.0, 1087, 230)]
    assert ids(load_burstgpt(path, drop_empty=True, log_types=["ConversationLengths log"])) == ["0"]


def test_columns_more_and_marks_of_windows_do_no_harm(file):
    text = "\ufeff" + BURSTGPT.replace("Log Type", "Log Type,Session ID").replace(" log", " log,3").replace(
        "\n", "\r\n"
    )
    assert ids(load_burstgpt(file(text), drop_empty=True)) == ["0", "1"]


def test_rows_that_are_not_in_order_are_put_in_order(file):
    lines = MOONCAKE.splitlines()
    assert ids(load_mooncake(file("\n".join(reversed(lines)) + "\n\n"))) == ["1", "0"]
    assert load_mooncake(file("\n".join(reversed(lines)))).requests[0].arrival == 0


@pytest.mark.parametrize(
    ("load", "text", "message"),
    [
        (
            load_azure,
            AZURE_2023.replace(",396,", ",many,"),
            "line 3: ContextTokens must be a whole number of at least 1, got 'many'",
        ),
        (load_azure, AZURE_2023.replace(",396,", ",-1,"), "line 3: ContextTokens must be .* got '-1'"),
        (
            load_azure,
            AZURE_2023.replace("2023-11-16 18:15:51", "yesterday"),
            "line 4: TIMESTAMP must be a date and a time",
        ),
        (load_azure, AZURE_2023.replace(",879,55", ",879"), "line 4: the row must be 3 fields, got .*'879'"),
        (load_azure, AZURE_2023.replace(",879,55", ",879,55,1"), "line 4: the row must be 3 fields"),
        (
            load_azure,
            AZURE_2023.replace("ContextTokens", "Context"),
            "line 1: column 'ContextTokens' is missing; there are",
        ),
        (load_azure, "TIMESTAMP,ContextTokens,GeneratedTokens\n", "holds no requests"),
        (load_azure, "", "line 1: column 'TIMESTAMP' is missing"),
        (
            load_mooncake,
            MOONCAKE.replace("512", "0"),
            "line 2: input_length must be a whole number of at least 1, got 0",
        ),
        (load_mooncake, MOONCAKE.replace("512", "5.5"), "line 2: input_length must be a whole number .* got 5.5"),
        (load_mooncake, MOONCAKE.replace("512", "true"), "line 2: input_length must be a whole number .* got True"),
        (load_mooncake, MOONCAKE.replace("512", "null"), "line 2: input_length must be given, got None"),
        (load_mooncake, MOONCAKE.replace("input_length", "length"), "line 1: input_length must be given"),
        (
            load_mooncake,
            MOONCAKE.replace("6500", '"x"'),
            "line 2: timestamp must be a finite number of at least 0, got 'x'",
        ),
        (
            load_mooncake,
            MOONCAKE.replace("[0]", '["0"]'),
            r"line 2: hash_ids must be a list of whole numbers .* got \['0'\]",
        ),
        (load_mooncake, MOONCAKE.replace("[0]", "[-1]"), "line 2: hash_ids must be a list of whole numbers"),
        (
            load_mooncake,
            MOONCAKE.replace("[0]", "[0, 1]"),
            "line 2: hash_ids must be at most 1: 512 tokens in blocks of 512, got '2 ids'",
        ),
        (load_mooncake, MOONCAKE.replace("[0]}", "[0]"), "line 2: no JSON"),
        (load_mooncake, MOONCAKE + "[]", r"line 3: the line must be a JSON object, got \[\]"),
        (
            load_bailian,
            BAILIAN.replace('"chat_id": 9', '"chat_id": 7'),
            "line 2: chat_id must be different in every line, got 7",
        ),
        (
            load_bailian,
            BAILIAN.replace('"turn": 2', '"turn": 0'),
            "line 2: turn must be a whole number of at least 1, got 0",
        ),
        (
            load_burstgpt,
            BURSTGPT.replace("45,", "nan,"),
            "line 3: Timestamp must be a finite number of at least 0, got 'nan'",
        ),
    ],
)
def test_bad_rows_are_named(file, load: Load, text, message):
    path = file(text)
    with pytest.raises(ConfigurationError, match=message) as caught:
        load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("load", [load_azure, load_mooncake])
def test_a_file_that_is_not_there_is_named(tmp_path, load: Load):
    with pytest.raises(ConfigurationError, match=r"nowhere\.csv cannot be read: .*No such file"):
        load(tmp_path / "nowhere.csv")


def test_a_file_that_is_no_text_is_named(tmp_path):
    path = tmp_path / "binary.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match=r"binary\.csv cannot be read"):
        load_azure(path)


# -- settings --


@pytest.fixture
def trace(tmp_path):
    """Ten requests, one a second."""
    path = tmp_path / "ten.jsonl"
    lines = [{"timestamp": 1000 * n, "input_length": n + 1, "output_length": 1} for n in range(10)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def settings(**table: Any):
        return read_workload({"kind": "mooncake", "path": str(path), **table})

    return settings


def test_a_replicate_is_the_next_part(trace):
    settings = trace(requests_per_replicate=4)
    parts = [settings.make(0, n) for n in (0, 1)]
    assert [ids(part) for part in parts] == [list("0123"), list("4567")]
    assert [[each.arrival for each in part.requests] for part in parts] == [[0, 1, 2, 3]] * 2
    with pytest.raises(
        ConfigurationError,
        match="has 10 requests, and with requests_per_replicate = 4 there are 2 replicates; number 2",
    ):
        settings.make(0, 2)


def test_without_parts_there_is_one_replicate(trace):
    assert ids(trace().make(0, 0)) == list("0123456789")
    with pytest.raises(ConfigurationError, match=r"there are 1 replicates; number 1 .*set requests_per_replicate"):
        trace().make(0, 1)


def test_windows_and_rates(trace):
    made = trace(start=3, end=6, rate_scale=2).make(0, 0)
    assert [(each.request_id, each.arrival) for each in made.requests] == [("3", 0), ("4", 0.5), ("5", 1)]
    assert [each.arrival for each in trace(rate=4).make(0, 0).requests[:3]] == [0, 0.25, 0.5]
    with pytest.raises(ConfigurationError, match=r"no requests from start = 30\.0 to end = None"):
        trace(start=30).make(0, 0)


def test_a_seed_does_not_change_a_trace_but_its_tenants(trace):
    tenants = [{"name": "a"}, {"name": "b"}]
    assert trace().make(0, 0) == trace().make(1, 0)
    assert trace(tenants=tenants).make(0, 0) != trace(tenants=tenants).make(1, 0)
    assert trace(tenants=tenants).make(1, 0) == trace(tenants=tenants).make(1, 0)


@pytest.mark.parametrize(("kind", "text"), [("azure", AZURE_2023), ("bailian", BAILIAN), ("burstgpt", BURSTGPT)])
def test_every_kind_can_be_chosen(file, kind, text):
    made = read_workload({"kind": kind, "path": str(file(text)), "drop_empty": True}).make(0, 0)
    assert made.requests[0].arrival == 0
    assert len(made.requests) >= 2
