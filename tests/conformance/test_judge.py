"""Errors of the kit's own parts are attributed to the rule that each part stands for."""

import pytest

from enginecore.contracts import BrokenRule
from enginecore.errors import InvariantError
from enginecore.messages import EngineCoreOutput
from enginecore_conformance.judge import Judge
from enginecore_conformance.transcript import Transcript


def rule_of(raised):
    return raised.value.rule


def test_an_error_of_the_transcript_breaks_the_rule_of_the_last_word():
    with pytest.raises(BrokenRule) as raised, Judge("scheduler"):
        Transcript().record([EngineCoreOutput("unknown", new_token_ids=[1])])
    assert rule_of(raised) == "one_last_word"


def test_a_run_may_attribute_a_part_to_another_rule():
    with pytest.raises(BrokenRule) as raised, Judge("scheduler", {"transcript": "policy_does_not_change_tokens"}):
        Transcript().record([EngineCoreOutput("unknown", new_token_ids=[1])])
    assert rule_of(raised) == "policy_does_not_change_tokens"


def test_an_error_of_other_code_is_of_the_component_s_own_books():
    with pytest.raises(BrokenRule) as raised, Judge("scheduler"):
        raise InvariantError("two requests hold block 3")
    assert rule_of(raised) == "its_own_books_hold"
