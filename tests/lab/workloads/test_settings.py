"""The table `[workload]`: what is wrong in it is said in a sentence."""

import json
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from enginecore.errors import ConfigurationError
from enginecore_lab.workloads import AnyWorkload, read_workload
from tests.lab.workloads.making import POISSON, ids

SYNTHETIC = {"kind": "synthetic", "num_requests": 5}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "workload.kind: must be set"),
        (
            {"kind": "azur", "path": "x"},
            "workload.kind = 'azur': no active plugin offers workload 'azur'; did you mean azure",
        ),
        ({"kind": "azure"}, "workload.path: must be set"),
        (
            {"kind": "azure", "p": "x", "zzz": 1, "qqq": 2},
            "workload: 'p', 'zzz', 'qqq' are no settings here; these are",
        ),
        ({"kind": "azure", "pth": "x"}, "workload: 'pth' is no setting here; did you mean path?"),
        ({**SYNTHETIC, "rate_scale": 0}, "workload.rate_scale = 0: must be greater than 0"),
        ({**SYNTHETIC, "rate_scale": 2, "rate": 3}, "rate = 3.0 and rate_scale = 2.0: set one of them"),
        ({**SYNTHETIC, "num_requests": 0}, "workload.num_requests = 0: must be greater than or equal to 1"),
        ({**SYNTHETIC, "prompt": {"kind": "geometric", "meann": 3}}, "'meann' is no setting here; did you mean mean?"),
        (
            {**SYNTHETIC, "prompt": {"kind": "geo", "mean": 3}},
            "workload.prompt.kind = 'geo': no active plugin offers lengths 'geo'\n  offered: constant",
        ),
        ({**SYNTHETIC, "tenants": [{"name": "a", "wieght": 3}]}, "'wieght' is no setting here; did you mean weight?"),
        ({**SYNTHETIC, "sessions": {"turn": 3}}, "'turn' is no setting here; did you mean turns?"),
        (
            {**SYNTHETIC, "prefix": {"levels": [{"branches": 2, "tokens": 20}]}},
            r"prefix.levels\[0\].tokens = 20 must be a multiple of block_size = 16",
        ),
        (
            {**SYNTHETIC, "output": {"kind": "constant", "tokens": 3}, "lengths_from": {"kind": "azure", "path": "x"}},
            "lengths_from and output both say lengths",
        ),
        ({"kind": "azure", "path": "x", "start": 9, "end": 9}, "end = 9.0 must be after start = 9.0"),
        ({"kind": "mix", "parts": []}, "at least 1 item"),
        ({"kind": "mix", "parts": [{"kind": "azure", "pth": "x"}]}, "did you mean path?"),
        (
            {"kind": "sharegpt", "path": "x", "arrivals": POISSON, "tokenizer": "t", "tokens_per_word": 1},
            "tokenizer and tokens_per_word both say how tokens are counted",
        ),
    ],
)
def test_what_is_wrong_is_named(table, message):
    with pytest.raises(ConfigurationError, match=message):
        read_workload(table)


def test_it_is_a_field_of_other_models():
    class Experiment(BaseModel):
        workload: AnyWorkload

    made = Experiment.model_validate({"workload": SYNTHETIC}).workload.make(0, 0)
    assert ids(made) == list("01234")
    with pytest.raises(ValidationError, match="'num_request' is no setting here; did you mean num_requests"):
        Experiment.model_validate({"workload": {"kind": "synthetic", "num_request": 3}})


def test_workloads_survive_the_way_to_other_processes_as_plain_values(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n")
    table = {"kind": "azure", "path": str(path), "tenants": [{"name": "a", "priority": 0.0}]}
    choice: Any = read_workload(table)
    made = choice.make(0, 0)
    assert choice.built.whole is choice.built.whole
    plain = json.loads(TypeAdapter(AnyWorkload).dump_json(choice, exclude_unset=True))
    assert plain == table
    again = read_workload(plain)
    assert again == choice
    assert again.make(0, 0) == made
