"""The kit's front doors, and that its checks look at every field there is."""

from typing import Any

import msgspec
import pytest

from enginecore.conformance.transports import CHECKS, check_transport, parametrize, prepare
from enginecore.conformance.transports.clients import FULL_PARAMS, FULL_REQUEST
from enginecore.conformance.transports.telling import FIELDS
from enginecore.errors import ConfigurationError, InvariantError
from enginecore.messages import EngineCoreRequest
from enginecore.sampling import SamplingParams
from tests.conformance.transports.example import UNIX
from tests.conformance.transports.mutants import MUTANTS, clients


def defaults(struct):
    """Fields that have their defaults."""
    return [
        field.name
        for field in msgspec.structs.fields(struct)
        if getattr(struct, field.name) == field.default or getattr(struct, field.name) in ([], {}, None)
    ]


def test_every_field_of_a_request_is_looked_at():
    assert defaults(FULL_REQUEST) == ["client_index", "data_parallel_rank"]  # stamped; refused when set
    assert defaults(FULL_PARAMS) == ["n", "detokenize"]  # refused when set; `stop` needs it
    fields = {field.name for field in msgspec.structs.fields(EngineCoreRequest)}
    assert fields - set(FIELDS) == {"request_id", "prompt_token_ids", "data_parallel_rank"}  # the second: token_ids
    assert {field.name for field in msgspec.structs.fields(SamplingParams)} == set(msgspec.structs.asdict(FULL_PARAMS))


def test_every_check_states_its_rule_and_has_a_name_of_its_own():
    assert len({item.name for item in CHECKS}) == len(CHECKS)
    assert all(item.rule.endswith(".") for item in CHECKS)


def test_every_check_is_one_that_some_bug_fails():
    caught: set[Any] = {vars(mutant)["caught_by"] for mutant in MUTANTS}
    # an event loop is the kernel's affair: of a transport it needs what other checks check
    assert {item.name for item in CHECKS} - caught == {"an_event_loop_gets_the_same"}


def test_a_report_of_a_transport_with_a_bug():
    skip = {name: "takes long" for name in ("shutdown_ends_everything", "shutdown_lets_requests_end")}
    report = check_transport(MUTANTS[clients.LosesCachedTokens], patience=5.0, skip=skip)
    assert [result.check.name for result in report.failed] == ["every_field_of_an_output_survives"]
    assert {result.check.name: result.reason for result in report.results if result.reason} == skip
    with pytest.raises(InvariantError, match=r"transport 'LosesCachedTokens': \d+ of \d+ checks passed"):
        report.require()


def test_a_transport_that_is_not_there_and_settings_that_are_wrong():
    with pytest.raises(ConfigurationError, match=r"'zqm'.*did you mean zmq\?"):
        prepare("zqm")
    with pytest.raises(ConfigurationError, match="max_message_bytes"):
        prepare(UNIX.COMPONENT, settings={"max_message_bytes": 3})
    with pytest.raises(ConfigurationError, match="no check of this component"):
        prepare("inproc", skip={"receive_never_waits": "it has none"})


def test_checks_become_test_cases():
    mark: Any = parametrize("inproc", skip={"every_field_survives": "for reasons"})
    cases = {case.id: case.marks for case in mark.args[1]}
    assert list(cases) == [item.check.name for item in prepare("inproc")]
    assert [mark.kwargs for mark in cases["every_field_survives"]] == [{"reason": "for reasons"}]
