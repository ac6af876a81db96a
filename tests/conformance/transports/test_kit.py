"""The kit's front doors, and that its checks look at every field there is."""

from typing import Any

import msgspec
import pytest

from enginecore.errors import ConfigurationError, InvariantError
from enginecore.messages import EngineCoreRequest
from enginecore.sampling import SamplingParams
from enginecore_conformance import check_component, parametrize, prepare
from enginecore_conformance.transports import CHECKS
from enginecore_conformance.transports.clients import FULL_PARAMS, FULL_REQUEST
from enginecore_conformance.transports.telling import FIELDS
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
    slow = {"shutdown_ends_everything", "shutdown_lets_requests_end"}
    mutant = MUTANTS[clients.LosesCachedTokens]
    only = {item.check.name for item in prepare(mutant)} - slow
    report = check_component(mutant, patience=5.0, only=only)
    assert [result.check.name for result in report.failed] == ["every_field_of_an_output_survives"]
    assert {result.check.name for result in report.results} == only
    with pytest.raises(InvariantError, match=r"transport 'LosesCachedTokens': \d+ of \d+ checks passed"):
        report.require()


def test_opt_outs_are_strict():
    name = "every_field_of_an_output_survives"
    [needed] = check_component(MUTANTS[clients.LosesCachedTokens], only=[name], skip={name: "for reasons"}).results
    assert (needed.outcome, needed.reason) == ("skipped", "for reasons")
    [needless] = check_component("transport:inproc", only=[name], skip={name: "for reasons"}).results
    assert (needless.outcome, needless.seen) == ("failed", "the rule holds")
    assert f"take '{name}' out of skip" in needless.right


def test_a_transport_that_is_not_there_and_settings_that_are_wrong():
    with pytest.raises(ConfigurationError, match=r"'zqm'.*did you mean zmq\?"):
        prepare("transport:zqm")
    with pytest.raises(ConfigurationError, match="max_message_bytes"):
        prepare(UNIX.COMPONENT, settings={"max_message_bytes": 3})
    with pytest.raises(ConfigurationError, match="no check of this component"):
        prepare("transport:inproc", skip={"receive_never_waits": "it has none"})
    with pytest.raises(ConfigurationError, match="no check of this component"):
        prepare("transport:inproc", only=["receive_never_waits"])


def test_names_that_name_nothing():
    with pytest.raises(ConfigurationError, match="write KIND:NAME"):
        prepare("inproc")
    with pytest.raises(
        ConfigurationError, match=r"'transprt', which is no kind of component; did you mean transport\?"
    ):
        prepare("transprt:inproc")
    with pytest.raises(ConfigurationError, match="no kit for components of kind 'tokenizer'; there are kits for sched"):
        prepare("tokenizer:auto")


def test_checks_become_test_cases():
    mark: Any = parametrize("transport:inproc", skip={"every_field_survives": "for reasons"})
    cases = {case.id: case.marks for case in mark.args[1]}
    assert list(cases) == [item.check.name for item in prepare("transport:inproc")]
    [xfail] = cases["every_field_survives"]
    assert (xfail.name, xfail.kwargs["reason"], xfail.kwargs["strict"]) == ("xfail", "for reasons", True)
