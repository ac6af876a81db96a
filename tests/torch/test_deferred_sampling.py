"""A step whose sampling is deferred gives the tokens that it would have given at once."""

import pytest

from enginecore.sampling import SamplingParams
from tests.torch.ranks import Ranks
from tests.torch.test_single_executor import new, plan
from tests.torch.tiny import Driver, hf_greedy, make_executor, make_hf_model, make_source

LAYOUTS = [(1, 1), (2, 1), (1, 2), (2, 2)]
PARAMS = {
    "greedy": SamplingParams(temperature=0, seed=0),
    "seeded": SamplingParams(temperature=0.9, seed=7, top_k=40),
    "late": SamplingParams(temperature=0, seed=0, min_tokens=20, max_tokens=40, logprobs=3),
}


@pytest.fixture(scope="module")
def model():
    return make_hf_model()


@pytest.fixture
def drivers(model):
    """Makes drivers of models in one piece or several, and stops their threads."""
    made = []

    def make(tensor, pipeline, *, defer=True, **changes):
        source = make_source(model)
        whole = tensor * pipeline == 1
        made.append(make_executor(source, **changes) if whole else Ranks(source, tensor, pipeline, **changes))
        return Driver(made[-1], range(64), 8, defer=defer)

    yield make
    for executor in made:
        executor.shutdown()


@pytest.mark.parametrize(("tensor", "pipeline"), LAYOUTS)
def test_tokens_and_logprobs_are_those_of_steps_sampled_at_once(drivers, tensor, pipeline):
    outputs, entries = [], []
    for defer in (False, True):
        driver = drivers(tensor, pipeline, defer=defer)
        for number, (name, params) in enumerate(PARAMS.items()):
            driver.add(name, range(3, 8 + 6 * number), params)
            driver.step({name: 3})
        seen = []
        while any(len(driver.output(name)) < 8 for name in PARAMS):
            seen.append(driver.step({name: driver.left(name) for name in PARAMS}).logprobs["late"])
        driver.finish("seeded", preempted=True)
        driver.generate("late", 12)
        driver.generate("seeded", 12)
        outputs.append([driver.output(name)[:8] for name in PARAMS] + [driver.output("seeded")[:12]])
        entries.append([[entry.token_ids for entry in step] for step in seen])
    assert outputs[0] == outputs[1]
    assert entries[0] == entries[1]


@pytest.mark.parametrize("ends", ["finished", "preempted"])
@pytest.mark.parametrize(("tensor", "pipeline"), [(1, 2), (2, 2)])
def test_a_request_that_is_gone_before_its_step_is_sampled_leaves_its_slot_to_the_next(
    drivers, model, tensor, pipeline, ends
):
    driver = drivers(tensor, pipeline, max_num_seqs=2)
    driver.add("old", range(3, 12))
    driver.add("other", range(5, 9))
    driver.submit({"old": 9})
    driver.submit({"other": 4})  # the next stage works on the one before
    driver.settle(0)
    driver.submit({"old": 1})
    driver.finish("old", preempted=ends == "preempted")
    driver.free.sort(reverse=True)  # the blocks of "old" are given out again at once
    driver.settle(1)
    driver.add("new", range(20, 33))
    driver.submit({"new": 13})
    sampled = driver.settle(2)
    assert sampled.request_ids == ["old"]
    assert sampled.sampled_token_ids == [hf_greedy(model, list(range(3, 12)), 2)[1:]]
    driver.settle(3)
    assert driver.generate("new", 6) == hf_greedy(model, list(range(20, 33)), 6)
    assert driver.generate("other", 6) == hf_greedy(model, list(range(5, 9)), 6)


@pytest.mark.parametrize(("tensor", "pipeline"), LAYOUTS)
def test_what_has_no_token_to_sample_is_answered_all_the_same(drivers, tensor, pipeline):
    driver = drivers(tensor, pipeline)
    driver.add("r", range(3, 20))
    chunk = driver.step({"r": 9})
    assert (chunk.step, chunk.request_ids) == (0, [])
    driver.step({"r": 8})
    driver.finish("r")
    ended = driver.submit({}).result(timeout=0)
    assert (ended.step, ended.request_ids) == (2, [])


def test_a_refused_request_is_told_when_its_step_is_sampled(drivers):
    executor = drivers(1, 1).executor
    scheduled = plan({"lora": 3}, new_requests=[new("lora", adapter="x")], defer_sampling=True)
    assert executor.execute_model(scheduled).result(timeout=0) is None
    assert list(executor.sample_tokens(3, None).result(timeout=0).errors) == ["lora"]
