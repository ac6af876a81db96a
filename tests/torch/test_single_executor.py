"""The executor `single` through its interface: life, faults of a request, faults of a step."""

import pytest
import torch

from enginecore.errors import ConfigurationError, EngineCoreError, EngineDeadError, StepError
from enginecore.interfaces import KVCacheConfig
from enginecore.messages import NewRequestData, RequestDelta, SchedulerOutput
from enginecore.sampling import SamplingParams
from tests.torch.tiny import GREEDY, Driver, hf_greedy, make_executor, make_hf_model, make_source


@pytest.fixture(scope="module")
def model():
    return make_hf_model(num_hidden_layers=2)


@pytest.fixture
def executor(model):
    return make_executor(make_source(model))


@pytest.fixture
def driver(executor):
    return Driver(executor, range(64), 8)


def new(request_id="r", tokens=(5, 6, 7), **changes):
    fields = {
        "request_id": request_id, "token_ids": list(tokens), "num_prompt_tokens": len(tokens), "params": GREEDY,
        "block_ids": ([1],),
    }  # fmt: skip
    return NewRequestData(**(fields | changes))


def plan(counts=None, **fields):
    return SchedulerOutput(step=3, num_scheduled_tokens=counts or {}, **fields)


# -- what it says about itself ---------------------------------------------------------------------


def test_what_it_declares(executor):
    assert executor.capabilities.max_concurrent_batches == 1
    assert executor.capabilities.in_order
    assert executor.capabilities.feeds_tokens
    assert not executor.capabilities.model_free
    info = executor.model_info
    assert (info.name, info.max_model_len, info.vocab_size) == ("tiny", 160, 211)
    assert (info.eos_token_ids, info.dtype, info.device) == ((2,), "float32", "cpu")


@pytest.mark.parametrize("attention", ["torch", "native"])
def test_kv_cache_specs_are_one_per_layer(model, attention):
    executor = make_executor(make_source(model), block_size=16, attention=attention)
    specs = executor.get_kv_cache_specs()
    assert list(specs) == ["model.layers.0", "model.layers.1"]
    assert {spec.block_size for spec in specs.values()} == {16}
    padded = 8 if attention == "torch" else 16  # the native kernel pads values to 16 dimensions
    assert {spec.page_size_bytes for spec in specs.values()} == {2 * 4 * 16 * (8 + padded)}
    assert executor.collective_rpc("attention_backend") == [attention]


def test_auto_dtype_is_one_that_the_cpu_multiplies_natively(model):
    found = make_executor(make_source(model), dtype="auto").model_info.dtype
    assert found == ("bfloat16" if torch.cpu._is_avx512_bf16_supported() else "float32")


def test_available_memory_is_no_more_than_the_machine_has(executor):
    assert 0 < executor.determine_available_memory() < 1 << 50


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (KVCacheConfig(4, 8, (("model.layers.0",),)), "one group of the 2 layers"),
        (KVCacheConfig(4, 8, (("model.layers.0",), ("model.layers.1",))), "one group of the 2 layers"),
        (KVCacheConfig(4, 16, (("model.layers.0", "model.layers.1"),)), "block_size 16, .* built for 8"),
    ],
)
def test_a_kv_cache_for_another_model_is_refused(executor, config, message):
    with pytest.raises(ConfigurationError, match=message):
        executor.initialize_from_config(config)


# -- steps -----------------------------------------------------------------------------------------


def test_a_prompt_chunk_gives_no_token_and_the_last_one_does(driver):
    driver.add("r", range(3, 23))
    first = driver.step({"r": 12})
    assert (first.request_ids, first.sampled_token_ids) == ([], [])
    last = driver.step({"r": 8})
    assert last.request_ids == ["r"]
    assert len(last.sampled_token_ids[0]) == 1
    assert last.step == 1


def test_plans_without_work_are_obeyed_and_answered(executor):
    executor.execute_model(plan({"r": 3}, new_requests=[new()])).result()
    assert executor.collective_rpc("num_requests") == [1]
    answer = executor.execute_model(plan(finished_ids=["r"])).result(timeout=0)
    assert (answer.step, answer.request_ids, answer.errors) == (3, [], {})
    assert executor.collective_rpc("num_requests") == [0]


def test_an_id_may_come_back_in_the_step_that_ends_it(driver, model):
    driver.add("r", [5, 6, 7])
    driver.generate("r", 2)
    driver.finish("r")
    driver.add("r", [9, 10])
    driver.blocks.pop("r", None)
    assert driver.generate("r", 3) == hf_greedy(model, [9, 10], 3)


def test_slots_are_used_again_for_ever(driver):
    for number in range(40):  # max_num_seqs is 8
        driver.add(f"r{number}", [5, 6])
        driver.generate(f"r{number}", 1)
        driver.finish(f"r{number}")
    assert driver.executor.collective_rpc("num_requests") == [1]  # the last is told with the next plan


def test_seeded_requests_keep_their_tokens_in_company_and_after_preemption(model):
    params = SamplingParams(temperature=0.8, seed=11, top_k=50)

    def driver():
        return Driver(make_executor(make_source(model)), range(64), 8)

    alone = driver()
    alone.add("r", range(3, 20), params)
    expected = alone.generate("r", 12)
    crowd = driver()
    crowd.add("other", range(4, 11), SamplingParams(temperature=1.5, seed=3))
    crowd.add("r", range(3, 20), params)
    crowd.step({"other": 7})
    crowd.step({"r": 9, "other": 1})
    crowd.step({"other": 1, "r": 8})
    crowd.step({"r": 1, "other": 1})
    assert crowd.output("r") == expected[:2]
    crowd.finish("r", preempted=True)
    crowd.step({"other": 1})
    assert crowd.generate("r", 12) == expected
    assert len(set(expected)) > 3


def test_min_tokens_keeps_eos_and_stop_tokens_away_for_exactly_so_long(model):
    free = {9, 11}  # neither EOS nor stop token; the model likes others better
    eos = tuple(token for token in range(0, 211, 2) if token not in free)
    stops = tuple(token for token in range(1, 211, 2) if token not in free)
    driver = Driver(make_executor(make_source(model, eos_token_ids=eos)), range(64), 8)
    driver.add("r", [50, 60], SamplingParams(seed=1, min_tokens=30, max_tokens=90, stop_token_ids=stops))
    tokens = driver.generate("r", 31)
    assert set(tokens[:30]) == free
    assert tokens[30] not in free
    driver.add("ignoring", [50, 60], SamplingParams(seed=1, min_tokens=30, max_tokens=90, ignore_eos=True))
    assert set(driver.generate("ignoring", 30)) & set(eos)


# -- faults of one request -------------------------------------------------------------------------


def test_an_adapter_is_refused_for_its_request_alone(executor):
    requests = [new("lora", adapter="x"), new("good", block_ids=([2],))]
    answer = executor.execute_model(plan({"lora": 3, "good": 3}, new_requests=requests)).result()
    assert list(answer.errors) == ["lora"]
    assert "adapter 'x'" in answer.errors["lora"]
    assert answer.request_ids == ["good"]
    executor.execute_model(plan({"good": 1}, finished_ids=["lora"])).result()


def test_a_prompt_beyond_the_context_is_refused_for_its_request_alone(executor):
    answer = executor.execute_model(plan({"r": 1}, new_requests=[new(tokens=[5] * 161)])).result()
    assert "161 tokens" in answer.errors["r"]


@pytest.mark.parametrize(("asked", "longest"), [(40, 40), (10**12, 160), (None, 160)])
def test_positions_are_as_many_as_asked_for_and_no_more_than_the_model_has(model, asked, longest):
    """Whether more may be asked for is the engine core's to say."""
    executor = make_executor(make_source(model), max_model_len=asked)
    assert executor.model_info.max_model_len == 160
    blocks = (list(range(-(-longest // 8))),)
    lengths = {"fits": longest, "not": longest + 1}
    requests = [new(name, tokens=[5] * length, block_ids=blocks) for name, length in lengths.items()]
    answer = executor.execute_model(plan({"fits": longest, "not": longest}, new_requests=requests)).result()
    assert answer is not None
    assert answer.request_ids == ["fits"]
    assert list(answer.errors) == ["not"]
    assert f"{longest + 1} tokens" in answer.errors["not"]


def test_logits_that_are_not_numbers_end_their_request_alone(model):
    source = make_source(model)
    source.tensors["model.embed_tokens.weight"] = source.tensors["model.embed_tokens.weight"].clone()
    source.tensors["model.embed_tokens.weight"][99] = torch.nan
    driver = Driver(make_executor(source), range(64), 8)
    driver.add("bad", [5, 99, 6])
    driver.add("good", [5, 98, 6])
    answer = driver.step({"bad": 3, "good": 3})
    assert list(answer.errors) == ["bad"]
    assert answer.sampled_token_ids[answer.request_ids.index("bad")] == []
    driver.finish("bad")
    driver.free.sort(key=lambda block: block != 0)  # the bad request's block is the next to be given out
    driver.add("next", [5, 98, 6])
    while len(driver.output("good")) < 8:
        driver.step({"good": 1, "next": driver.left("next")})
    assert driver.output("next")[:7] == driver.output("good")[:7] == hf_greedy(model, [5, 98, 6], 7)


# -- faults of a step ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (plan({"x": 1}), "'x', which the worker does not know"),
        (plan({"r": 2}), "up to token 5, but it has 4 tokens, and blocks for 8"),
        (plan(deltas=[RequestDelta(request_id="x", new_block_ids=([2],), num_computed_tokens=0)]), "'x', which"),
        (
            plan(deltas=[RequestDelta(request_id="r", new_block_ids=([2],), num_computed_tokens=1)]),
            "1 tokens of request 'r' were computed, the worker computed 3",
        ),
        (plan(new_requests=[new("r")]), "'r' is new in this plan, but the worker knows it"),
        (plan(new_requests=[new(f"n{number}") for number in range(8)]), "more than max_num_seqs = 8"),
        (plan(new_requests=[new("n", block_ids=(list(range(21)),))]), "21 blocks, .* no more than 20"),
    ],
)
def test_a_plan_that_contradicts_the_worker_fails_the_step_and_then_the_executor(executor, wrong, message):
    told: list[BaseException] = []
    executor.register_failure_callback(told.append)
    executor.check_health()
    executor.execute_model(plan({"r": 3}, new_requests=[new()])).result()
    future = executor.execute_model(wrong)
    assert future.done()
    with pytest.raises(StepError, match=message):
        future.result()
    assert [str(error) for error in told] == [str(future.exception())]
    executor.register_failure_callback(told.append)
    assert len(told) == 2
    with pytest.raises(EngineDeadError, match="failed in an earlier step"):
        executor.check_health()
    with pytest.raises(EngineDeadError):
        executor.execute_model(plan())


def test_a_request_without_blocks_for_its_tokens_fails_the_step(executor):
    with pytest.raises(StepError, match="blocks for 8"):
        executor.execute_model(plan({"r": 9}, new_requests=[new(tokens=range(3, 12))])).result()


# -- the rest of the interface ---------------------------------------------------------------------


def test_a_step_that_was_not_deferred_cannot_be_sampled(executor):
    with pytest.raises(EngineCoreError, match="step 4 does not wait to be sampled"):
        executor.sample_tokens(4, None).result(timeout=0)


@pytest.mark.parametrize("method", ["no_such_method", "_forward", "execute_model", "dummy_run", "initialize_kv_cache"])
def test_collective_rpc_names_what_it_does_not_know(executor, method):
    with pytest.raises(AttributeError, match=method):
        executor.collective_rpc(method)


def test_after_shutdown_every_call_says_so(executor):
    executor.shutdown()
    executor.shutdown()
    for call in (
        executor.check_health,
        executor.determine_available_memory,
        lambda: executor.execute_model(plan()),
        lambda: executor.sample_tokens(0, None),
        lambda: executor.collective_rpc("num_requests"),
        lambda: executor.initialize_from_config(KVCacheConfig(1, 8, (("model.layers.0", "model.layers.1"),))),
    ):
        with pytest.raises(EngineDeadError, match="shut down"):
            call()


def test_a_step_before_the_kv_cache_exists_fails(model):
    from enginecore_torch.executor import SingleExecutor
    from enginecore_torch.settings import SingleExecutorSettings
    from tests.torch.tiny import make_context

    executor = SingleExecutor(SingleExecutorSettings(), make_context(), make_source(model))
    with pytest.raises(StepError, match="before the KV cache"):
        executor.execute_model(plan({"r": 3}, new_requests=[new()])).result()


def test_num_threads_sets_the_threads_of_torch(model):
    make_executor(make_source(model), settings={"num_threads": 2})
    assert torch.get_num_threads() == 2
    make_executor(make_source(model), settings={"num_threads": 1})
    assert torch.get_num_threads() == 1
