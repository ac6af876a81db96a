"""Whatever a policy decides: same tokens, every block back, and a word to every client.

Long random runs of every policy under every kind of executor, in tight and in roomy pools, with requests cancelled at
any point of their lives.
"""

import itertools
from collections import Counter
from random import Random
from typing import Any

import pytest

from enginecore.messages import FinishReason
from enginecore_conformance.workloads import BrickWorkload
from enginecore_schedulers import enginecore_components
from tests.scheduling.harnesses import make_harness

BLOCK_SIZE = 4
COMPONENTS = {each.name: each for each in enginecore_components() if each.kind == "scheduler"}
EXECUTORS = [
    (1, False),
    pytest.param(1, True, marks=pytest.mark.full),
    pytest.param(2, False, marks=pytest.mark.full),
    (2, True),
    pytest.param(4, False, marks=pytest.mark.full),
    (4, True),
]
# in runs of a hundred short steps, settings for seconds and hundreds of tokens would change nothing
SETTINGS: dict[str, dict[str, Any]] = {
    "fcfs": {"prefill_chunk_size": 6},
    "priority": {},
    "prefill_first": {},
    "static_batch": {"max_delay": 0.7},
    "sjf": {},
    "srpt": {"margin": 2.0, "lease": 2},
    "mlfq": {"quantum": 1, "levels": 4, "patience": 5.0},
    "vtc": {"shares": {"tenant1": 2.0}},
    "edf": {"ttft": 3.0, "slack": 2.0, "late_every": 3},
    "lpm": {"window": 5, "patience": 2},
    "gittins": {"prompt_weight": 0.1},
}


def test_all_policies_are_tried():
    assert SETTINGS.keys() == COMPONENTS.keys()


def make_policy(name, **settings):
    """As an engine makes it: its settings are validated, and the others have their defaults."""
    component = COMPONENTS[name]
    checked = component.settings(**settings)
    return component.factory._policy(**{field: getattr(checked, field) for field in type(checked).model_fields})  # type: ignore[attr-defined]


def make(name, seed, *, depth, feeds_tokens, in_order=True, **conditions):
    return make_harness(
        policy=make_policy(name, **SETTINGS[name]),
        block_size=BLOCK_SIZE,
        max_num_batched_tokens=16,
        max_model_len=64,
        oracle={
            "vocab_size": 64,
            "depth": depth,
            "feeds_tokens": feeds_tokens,
            "in_order": in_order,
            "step_time": 0.1 if seed % 2 else 1.0,
        },
        **{"max_num_seqs": 4, **conditions},
    )


def requests(seed, count=20):
    """They differ in all that a policy may look at."""
    random = Random(seed)
    made = BrickWorkload(
        seed=seed, block_size=BLOCK_SIZE, vocab_size=64, max_bricks=5, salts=(None, "x"), max_tokens=24
    ).requests(count)
    for request in made:
        request.deadline = random.choice((None, random.uniform(0.0, 60.0)))
        hints = {"predicted_output_tokens": random.uniform(1, 30), "itl": random.uniform(0.1, 3), "class": 1.0}
        request.hints = {hint: value for hint, value in hints.items() if random.random() < 0.7}
    return made


def run(harness, seed, *, cancels):
    """They arrive step by step, and some are cancelled; what came about on the way, counted."""
    random, seen = Random(seed), Counter[str]()

    def move():
        submitted = harness.submit() is not None
        seen["late tokens"] += sum(live.num_late_tokens for live in harness.scheduler.unfinished_requests)
        if random.random() < cancels:
            cancel(harness, random, seen)
        if not submitted or harness.num_in_flight == harness.conditions.oracle.depth:
            if not harness.settle():
                harness.step()  # time may have to pass

    for request in requests(seed):
        harness.add(request)
        for _ in range(random.randrange(4)):
            move()
    while harness.scheduler.has_requests() or harness.num_in_flight:
        move()
    harness.run()  # checks all tokens, and that nothing is left
    seen["preemptions"] = harness.scheduler.get_stats().num_preemptions
    seen["hits"] = harness.scheduler.get_stats().prefix_cache_hits
    seen.update(
        "completed" for story in harness.transcript.stories
        if story.finish_reason in (FinishReason.STOP, FinishReason.LENGTH)
    )  # fmt: skip
    return seen


def cancel(harness, random, seen):
    """A request, whatever it is doing, named twice beside one that has ended and one that never was."""
    live = {request.request_id: request for request in harness.scheduler.unfinished_requests}
    chosen = random.sample(sorted(live), min(1, len(live)))
    for request in map(live.__getitem__, chosen):
        in_prompt = request.num_scheduled_tokens < request.num_prompt_tokens
        where = "waiting" if request.status.name == "WAITING" else "in prompt" if in_prompt else "decoding"
        seen[f"cancelled {where}"] += 1
        seen["cancelled in flight"] += request.num_in_flight_tokens > 0
    ended = [story.request.request_id for story in harness.transcript.stories if not story.is_open]
    harness.abort([*chosen, "never seen", *ended[-1:], *chosen])


@pytest.mark.parametrize(("depth", "feeds_tokens"), EXECUTORS)
@pytest.mark.parametrize("name", sorted(COMPONENTS))
def test_same_tokens_in_tight_and_roomy_pools(name, depth, feeds_tokens):
    tight, roomy, reached = Counter[str](), Counter[str](), 0
    for seed, in_order, caching in ((1, True, True), (2, False, True), (3, True, False)):
        for num_blocks, seen in ((11, tight), (50, roomy)):
            harness = make(name, seed, depth=depth, feeds_tokens=feeds_tokens, in_order=in_order,
                           num_blocks=num_blocks, enable_prefix_caching=caching)  # fmt: skip
            seen.update(run(harness, seed, cancels=0.0))
            reached = max(reached, harness.max_in_flight)
    assert reached == depth
    assert tight["completed"] == roomy["completed"] == 60
    assert tight["preemptions"] > 10
    assert roomy["hits"] > 20
    assert (tight["late tokens"] > 0) == (depth > 1)


@pytest.mark.parametrize(("depth", "feeds_tokens"), EXECUTORS)
@pytest.mark.parametrize("name", sorted(COMPONENTS))
def test_cancelled_anywhere(name, depth, feeds_tokens):
    seen = Counter[str]()
    for seed, in_order in itertools.product((4, 5), (True, False)):
        harness = make(name, seed, depth=depth, feeds_tokens=feeds_tokens, in_order=in_order, num_blocks=14)
        seen.update(run(harness, seed, cancels=0.12))
    assert seen["completed"] > 10
    assert min(seen[f"cancelled {where}"] for where in ("waiting", "decoding", "in flight")) > 2, seen


@pytest.mark.parametrize("name", sorted(COMPONENTS))
def test_requests_are_refused_without_harm(name):
    """Those that can never run, and, where a policy refuses, those too: the others go on, and everybody is told."""
    settings = {**SETTINGS[name], **({"missed": "refuse"} if name == "edf" else {})}
    harness = make_harness(policy=make_policy(name, **settings), num_blocks=8, block_size=BLOCK_SIZE,
                           max_model_len=256, max_num_seqs=3, max_num_batched_tokens=16,
                           oracle={"vocab_size": 64, "step_time": 0.5})  # fmt: skip
    told = requests(6)
    told[7].prompt_token_ids = [1] * 40
    for request in told:
        harness.add(request)
        harness.step()
    harness.run()
    errors = {story.request.request_id: str(story.terminal.error) for story in harness.transcript.stories
              if story.terminal and story.finish_reason is FinishReason.ERROR}  # fmt: skip
    assert "40 tokens" in errors.pop("r7")
    assert all("deadline cannot be met" in error for error in errors.values())
    assert bool(errors) == (name == "edf")


@pytest.mark.parametrize("name", sorted(COMPONENTS))
def test_the_same_arrivals_give_the_same_plans(name):
    plans = []
    for _ in range(2):
        harness = make(name, 1, depth=2, feeds_tokens=True, num_blocks=12)
        run(harness, 7, cancels=0.1)
        plans.append(harness.plans)
    assert plans[0] == plans[1]


@pytest.mark.parametrize("name", sorted(COMPONENTS))
def test_whole_prompts(name):
    """Where prompts may not be split."""
    settings = {} if name == "fcfs" else SETTINGS[name]
    seen = Counter[str]()
    for seed in (1, 2):
        harness = make_harness(policy=make_policy(name, **settings), num_blocks=16, block_size=BLOCK_SIZE,
                               max_num_seqs=4, max_model_len=64, max_num_batched_tokens=64,
                               enable_chunked_prefill=False, oracle={"vocab_size": 64, "step_time": 0.5})  # fmt: skip
        seen.update(run(harness, seed, cancels=0.0))
    assert seen["completed"] == 40
    assert seen["preemptions"] > 0
