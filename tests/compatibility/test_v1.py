"""Packages written against the first version of `enginecore.plugins.v1` build, pass their kits and run, unedited."""

import json

import pytest

from tests.compatibility.frozen import CHECKSUMS, V1, checksums, recorded_checksums

KITS = {
    "scheduler:frozen-policy": 40,
    "scheduler:frozen-scheduler": 40,
    "victim:frozen-victim": 6,
    "kv_cache_manager:frozen-kv-cache-manager": 20,
    "eviction:frozen-eviction": 5,
    "executor:frozen-executor": 15,
}
"""Components that a kit checks in a few seconds, and how many checks at least must be passed, not skipped."""

TRANSPORT_CHECKS = ("messages_arrive_whole", "messages_arrive_in_order_and_once", "strangers_disturb_no_front_end")

RUN = """
import json, sys
from enginecore import LLM, SamplingParams

limits = {"block_size": 8, "num_kv_blocks": 18, "max_model_len": 128, "max_num_seqs": 4}
with LLM(**json.loads(sys.argv[1]), **limits) as llm:
    prompts = [{"prompt_token_ids": [7] * 16 + [number] * 20} for number in range(8)]
    params = SamplingParams(max_tokens=24, detokenize=False, seed=1, ignore_eos=True)
    tokens = [output.outputs[0].token_ids for output in llm.generate(prompts, params, use_tqdm=False)]
    origins = {kind: record.distribution for kind, record in llm.origins.items()}
    print(json.dumps([origins, llm.get_stats().num_preemptions, tokens]))
"""

CHAT = """
import sys
from enginecore import LLM, SamplingParams
from enginecore.errors import InvalidRequestError

with LLM(tokenization={"use": "frozen-tokenizer"}, executor={"use": "frozen-executor"}) as llm:
    [output] = llm.generate("Grüße", SamplingParams(max_tokens=3, temperature=0), use_tqdm=False)
    print(len(output.prompt_token_ids), repr(output.outputs[0].text))
    try:
        llm.chat([{"role": "user", "content": "Hello"}])
    except InvalidRequestError as error:
        print(error)
"""


def run(environment, **settings):
    """Origins of the components, the number of preemptions, and the tokens of each request."""
    done = environment.python("-c", RUN, json.dumps(settings))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check(environment, component, *options):
    """How often each outcome occurs, of the checks of a component."""
    done = environment.enginecore("check", "--json", component, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return [result["outcome"] for result in json.loads(done.stdout)]


def test_no_frozen_file_was_edited():
    """A package that must be edited to work shows that the interface broke: mend the interface, not the package."""
    assert checksums(V1) == recorded_checksums(), f"{V1} differs from {CHECKSUMS.name}"


def test_each_package_is_found_and_the_transport_must_be_allowed(v1):
    found, _ = v1.plugins()
    states = {name: record["status"] for name, record in found.items() if name.startswith("frozen-")}
    assert states.pop("frozen-transport") == "blocked"
    assert len(states) == 7
    assert set(states.values()) == {"active"}


@pytest.mark.parametrize("component", KITS)
def test_components_pass_todays_kit(v1, component):
    outcomes = check(v1, component)
    assert "failed" not in outcomes
    assert outcomes.count("passed") >= KITS[component]


def test_the_transport_passes_todays_kit_where_it_is_quick(v1):
    allow = ("--set", 'plugins.allow=["enginecore", "frozen-transport"]')
    only = [option for name in TRANSPORT_CHECKS for option in ("--only", name)]
    assert check(v1, "transport:frozen-transport", *allow, *only) == ["passed"] * len(TRANSPORT_CHECKS)


def test_parts_run_requests_in_place_of_the_bundled_ones_and_no_token_changes(v1):
    oracle = {"executor": {"use": "oracle"}}
    origins, _, tokens = run(v1, **oracle)
    assert set(origins.values()) == {"enginecore"}

    origins, num_preemptions, others = run(
        v1,
        **oracle,
        plugins={
            "allow": ["enginecore", *(f"frozen-{name}" for name in ("policy", "victim", "eviction", "transport"))]
        },
        scheduler={"use": "frozen-policy"},
        victim={"use": "frozen-victim"},
        eviction={"use": "frozen-eviction"},
        transport={"use": "frozen-transport"},
    )
    frozen = {kind: origin for kind, origin in origins.items() if origin.startswith("frozen-")}
    assert set(frozen) == {"scheduler", "victim", "eviction", "transport"}
    assert num_preemptions > 0
    assert others == tokens

    origins, num_preemptions, others = run(
        v1,
        **oracle,
        scheduler={"use": "frozen-scheduler"},
        kv_cache_manager={"use": "frozen-kv-cache-manager"},
        enable_prefix_caching=False,
    )
    assert {origins["scheduler"], origins["kv_cache_manager"]} == {"frozen-scheduler", "frozen-kv-cache-manager"}
    assert num_preemptions > 0
    assert others == tokens


def test_the_executor_runs_requests(v1):
    origins, _, tokens = run(v1, executor={"use": "frozen-executor"})
    assert origins["executor"] == "frozen-executor"
    assert tokens == [[0] * 24] * 8


def test_the_tokenizer_runs_and_has_no_chat_template(v1):
    done = v1.python("-c", CHAT)
    assert done.returncode == 0, done.stderr
    text, refused = done.stdout.splitlines()
    assert text == r"7 '\x00\x00\x00'"
    assert "FrozenTokenizer has no chat template" in refused
