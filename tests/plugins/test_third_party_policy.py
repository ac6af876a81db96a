"""`examples/third_party_policy`: built, installed and chosen by a file, as its author and its users would."""

import json

import pytest

from tests.plugins.environment import REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "third_party_policy"

RUN = """
import sys
from enginecore import LLM, SamplingParams

with LLM(config_file=sys.argv[1], executor={"use": "oracle"}, max_num_seqs=1) as llm:
    engine, params = llm.llm_engine, SamplingParams(max_tokens=4, ignore_eos=True, detokenize=False)
    for name, length in (("long", 60), ("short", 3), ("middle", 20)):
        engine.add_request(name, {"prompt_token_ids": [length] * length}, params)
    finished = []
    while engine.has_unfinished_requests():
        finished += [output.request_id for output in engine.step() if output.finished]
    print(llm.info.components["scheduler"], llm.origins["scheduler"].distribution, *finished)
"""


@pytest.fixture
def environment(third_party):
    return third_party


def test_it_is_listed(environment):
    found, _ = environment.plugins()
    record = found["shortest-prompt-first"]
    assert (record["status"], record["version"], record["module"]) == ("active", "0.1.0", "shortest_prompt_first")
    [component] = record["components"]
    assert (component["kind"], component["name"]) == ("scheduler", "shortest-prompt-first")
    assert component["summary"] == "Short prompts go first; a long one gains on them while it waits."


def test_it_runs_once_a_file_chooses_it(environment):
    done = environment.python("-c", RUN, str(EXAMPLE / "engine.toml"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["shortest-prompt-first", "shortest-prompt-first", "short", "middle", "long"]


def test_installing_it_chooses_nothing(environment, tmp_path):
    (tmp_path / "empty.toml").write_text("")
    done = environment.python("-c", RUN, str(tmp_path / "empty.toml"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["fcfs", "enginecore", "long", "short", "middle"]


def test_its_settings_come_from_the_file_and_are_checked(environment, tmp_path):
    done = environment.enginecore("config", "--json", "--config", str(EXAMPLE / "engine.toml"))
    answer = json.loads(done.stdout)
    assert answer["settings"]["scheduler"]["shortest-prompt-first"] == {"tokens_per_second": 50.0}
    assert answer["sources"]["scheduler.shortest-prompt-first.tokens_per_second"] == f"file {EXAMPLE / 'engine.toml'}"

    wrong = tmp_path / "wrong.toml"
    wrong.write_text("[scheduler.shortest-prompt-first]\ntokens_per_secnd = 1\n")
    done = environment.enginecore("config", "--config", str(wrong))
    assert done.returncode == 2
    assert "did you mean scheduler.shortest-prompt-first.tokens_per_second?" in done.stderr

    variable = "ENGINECORE_SCHEDULER__SHORTEST_PROMPT_FIRST__TOKENS_PER_SECOND"  # a shell allows no dashes there
    done = environment.enginecore("config", "--json", **{variable: "2.5"})
    assert json.loads(done.stdout)["settings"]["scheduler"]["shortest-prompt-first"] == {"tokens_per_second": 2.5}


def test_its_own_tests_pass(environment):
    assert "5 passed" in environment.own_tests(EXAMPLE.name, "-k", "not contract")


def test_the_command_finds_that_it_keeps_its_contract(environment):
    done = environment.enginecore("check", "--json", "scheduler:shortest-prompt-first")
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(done.stdout)
    assert {result["outcome"] for result in results} == {"passed"}
    assert {"policy_does_not_change_tokens", "wait_is_bounded"} <= {result["check"] for result in results}
