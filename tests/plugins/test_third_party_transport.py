"""`examples/third_party_transport`: built, installed, let in and chosen by a file, as author and users would do it."""

import json

import pytest

from tests.plugins.environment import REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "third_party_transport"
CONFIG = str(EXAMPLE / "engine.toml")

RUN = """
import sys
from enginecore import LLM, SamplingParams

with LLM(executor={"use": "oracle"}, **({"config_file": sys.argv[1]} if sys.argv[1:] else {})) as llm:
    params = SamplingParams(max_tokens=20, ignore_eos=True, detokenize=False, seed=7)
    prompts = [{"prompt_token_ids": [length] * length} for length in (3, 60, 20)]
    tokens = [output.outputs[0].token_ids for output in llm.generate(prompts, params, use_tqdm=False)]
    print(llm.info.components["transport"], llm.origins["transport"].distribution, tokens, sep="\\n")
"""

CHECK_BY_NAME = """
from enginecore_conformance import prepare

allow, only = ["enginecore", "unix-socket-transport"], ["an_engine_core_that_is_killed_is_seen"]
[check] = prepare("transport:unix-socket", allow=allow, only=only)
print(check.run())
"""


@pytest.fixture
def environment(third_party):
    return third_party


def test_it_is_blocked_until_a_list_allows_it(environment):
    found, _ = environment.plugins()
    record = found["unix-socket-transport"]
    assert record["status"] == "blocked"
    assert "plugins.allow must name it" in record["reason"]
    done = environment.enginecore("config", "--set", "transport.use=unix-socket")
    assert done.returncode == 2
    assert "plugins.allow must name it" in done.stderr

    found, _ = environment.plugins("--config", CONFIG)
    record = found["unix-socket-transport"]
    assert (record["status"], record["version"], record["module"]) == ("active", "0.1.0", "unix_socket_transport")
    [component] = record["components"]
    assert (component["kind"], component["name"]) == ("transport", "unix-socket")
    assert component["capabilities"] == ["channels"]


def test_an_engine_runs_behind_it_once_a_file_chooses_it(environment):
    behind = environment.python("-c", RUN, CONFIG)
    assert behind.returncode == 0, behind.stderr
    transport, distribution, tokens = behind.stdout.splitlines()
    assert (transport, distribution) == ("unix-socket", "unix-socket-transport")
    plain = environment.python("-c", RUN, ENGINECORE_TRANSPORT__USE="inproc")
    assert plain.stdout.splitlines() == ["inproc", "enginecore", tokens]


def test_its_settings_come_from_the_file_and_are_checked(environment, tmp_path):
    answer = json.loads(environment.enginecore("config", "--json", "--config", CONFIG).stdout)
    assert answer["settings"]["transport"]["unix-socket"] == {"max_message_bytes": 67108864}

    wrong = tmp_path / "wrong.toml"
    wrong.write_text((EXAMPLE / "engine.toml").read_text().replace("67108864", "17"))
    done = environment.enginecore("config", "--config", str(wrong))
    assert done.returncode == 2
    assert "transport.unix-socket.max_message_bytes = 17" in done.stderr
    assert "1024" in done.stderr


def test_it_is_checked_by_name(environment):
    done = environment.python("-c", CHECK_BY_NAME)
    assert (done.returncode, done.stdout) == (0, "passed an_engine_core_that_is_killed_is_seen\n"), done.stderr


def test_its_own_tests_pass(environment):
    """Of the contract a few checks: all of them are run where the module is imported from where it lies."""
    chosen = "not test_contract or messages_arrive_whole or strangers_disturb_no_front_end or every_field_survives"
    assert "12 passed" in environment.own_tests(EXAMPLE.name, "-k", chosen)
