"""The executor `multiproc` with a real model: the tokens of `single`, whatever the engine does meanwhile."""

# pyright: reportArgumentType=false

import asyncio
import json
import os
import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from enginecore import LLM, AsyncLLM, SamplingParams
from enginecore.assembly import build_engine_core
from enginecore.clock import RealClock
from enginecore.errors import ConfigurationError, EngineCoreError, EngineDeadError, ModelError
from enginecore.interfaces import Executor, KVCacheConfig
from enginecore.messages import EngineCoreRequest, NewRequestData, SchedulerOutput
from enginecore.plugin import Component
from enginecore.settings import load_settings
from enginecore_torch.executor import SingleExecutor
from enginecore_torch.multiproc.executor import WORKER, MultiprocExecutor
from enginecore_torch.settings import MultiprocExecutorSettings
from tests.deferring import DEFERRING
from tests.forwarding import forwarding
from tests.torch import fake_worker
from tests.torch.test_workers import PATIENCE, all_gone, until
from tests.torch.tiny import GREEDY, make_context, make_hf_model

FAULTY = "tests.torch.fake_worker:real"
SKEWED = "tests.torch.fake_worker:skewed"
MEETING = "tests.torch.fake_worker:meeting"
COUNT = 30


def prompts():
    """Eight prompts of 3 to 60 tokens; three share their first 32."""
    rng = random.Random(5)
    draw = lambda length: [rng.randrange(3, 200) for _ in range(length)]  # noqa: E731
    shared = draw(32)
    return [draw(3), shared + draw(5), draw(60), shared + draw(9), draw(17), draw(40), shared + draw(2), draw(8)]


@forwarding(Executor, to="executor")
class _Shared(Executor):
    """An executor that outlives the engines around it: loading it is what takes time in these tests."""

    def __init__(self, executor: Any) -> None:
        self.executor = executor
        self.deepest = 0
        self.in_flight = 0

    def execute_model(self, scheduled: SchedulerOutput) -> Any:
        self.in_flight += 1
        self.deepest = max(self.deepest, self.in_flight)
        future = self.executor.execute_model(scheduled)
        future.add_done_callback(self._done)
        return future

    def _done(self, future: Any) -> None:
        self.in_flight -= 1

    def register_failure_callback(self, callback: Any) -> None:
        """Engines come and go."""

    def shutdown(self) -> None:
        """It stays."""


Shared: Any = _Shared  # a type checker cannot see what is forwarded


CONTEXT = {"block_size": 8, "max_num_seqs": 6, "max_num_batched_tokens": 160, "max_model_len": 160}


def run_workload(model, executor, num_prompts=8, **settings):
    """Tokens of each request, and the scheduler's counters; every third request is aborted on the way."""
    component = Component(
        kind="executor", name="shared", factory=lambda settings, context: executor, summary="made before"
    )
    loaded = load_settings(
        {
            "model": str(model), "dtype": "float32", "executor": {"use": "shared"}, "num_kv_blocks": 20,
            "scheduler": {"fcfs": {"prefill_chunk_size": 24}}, "debug": {"check_invariants": True},
            **CONTEXT, **settings,
        },
        components=[component, *DEFERRING],
        environ={},
    )  # fmt: skip
    core = build_engine_core(loaded, RealClock())
    tokens: dict[str, list[int]] = {}
    for number, prompt in enumerate(prompts()[:num_prompts]):
        params = (
            SamplingParams(temperature=0, seed=0, ignore_eos=True, max_tokens=COUNT)
            if number % 4
            else SamplingParams(temperature=0.8, seed=number, top_p=0.9, ignore_eos=True, max_tokens=COUNT)
        )
        core.add_request(EngineCoreRequest(request_id=str(number), prompt_token_ids=prompt, params=params))
        tokens[str(number)] = []
    while core.has_requests():
        for due in core.advance()[0].values():
            for output in due.outputs:
                tokens[output.request_id] += output.new_token_ids
                assert output.error is None
                if int(output.request_id) % 3 == 2 and len(tokens[output.request_id]) == 4:
                    core.abort_requests([output.request_id])
    stats = core.call_utility("get_stats")
    assert stats.num_free_blocks == stats.num_blocks
    assert executor.collective_rpc("num_requests") == [0] * len(executor.collective_rpc("num_requests"))
    core.shutdown()
    return tokens, stats


def check_same(tokens, expected):
    """Aborted requests may have got further in one run than in another."""
    for request_id, mine in tokens.items():
        theirs = expected[request_id]
        if int(request_id) % 3 == 2:
            length = min(len(mine), len(theirs))
            assert length >= 4
            assert mine[:length] == theirs[:length], request_id
        else:
            assert mine == theirs, request_id
            assert len(mine) == COUNT


def check_deferred(model, executor, expected):
    """Steps that are sampled after their forward pass, all of them and some, amid aborts and preemptions."""
    for scheduler in DEFERRING:
        tokens, stats = run_workload(model, Shared(executor), scheduler={"use": scheduler.name})
        check_same(tokens, expected)
        assert stats.num_preemptions > 0


SHAPES: dict[str, dict[str, Any]] = {
    "grouped_tied": {"num_key_value_heads": 3, "tie_word_embeddings": True},
    "uneven": {"num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 72, "vocab_size": 205},
    "one_kv_head": {"num_key_value_heads": 1, "attention_bias": True},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Tiny models on disk, by shape; three layers each."""
    found = {}
    for name, fields in SHAPES.items():
        found[name] = tmp_path_factory.mktemp(name) / "model"
        make_hf_model(**fields).save_pretrained(found[name])
    return found


def start(model, tensor, pipeline, worker=WORKER, **settings):
    chosen = MultiprocExecutorSettings(
        tensor_parallel_size=tensor, pipeline_parallel_size=pipeline, num_threads=1, **settings
    )
    return MultiprocExecutor(chosen, make_context(model=str(model), **CONTEXT), worker=worker)


@pytest.mark.parametrize(
    ("shape", "tensor", "pipeline", "depth"),
    [
        ("uneven", 2, 1, 2),
        ("grouped_tied", 1, 2, 2),
        ("one_kv_head", 2, 2, 2),
        pytest.param("grouped_tied", 2, 2, 2, marks=pytest.mark.full),
        pytest.param("uneven", 3, 1, 2, marks=pytest.mark.full),
        pytest.param("uneven", 1, 3, 3, marks=pytest.mark.full),
    ],
)
def test_tokens_equal_those_of_single(folders, shape, tensor, pipeline, depth):
    model = folders[shape]
    single = SingleExecutor.from_context(
        MultiprocExecutorSettings(num_threads=1), make_context(model=str(model), **CONTEXT)
    )
    expected, _ = run_workload(model, Shared(single), num_kv_blocks=200)
    check_deferred(model, single, expected)
    executor = start(model, tensor, pipeline, overlap="on")
    try:
        for caching in (True, False):
            shared = Shared(executor)
            tokens, stats = run_workload(model, shared, enable_prefix_caching=caching)
            check_same(tokens, expected)
            assert stats.num_preemptions > 0
            assert (stats.prefix_cache_hits > 0) == caching
            assert shared.deepest == depth
        check_deferred(model, executor, expected)
        alone, _ = run_workload(model, Shared(executor), num_prompts=3, max_num_seqs=1)
        check_same(alone, expected)
        usage = executor.collective_rpc("memory_usage")
        assert len(usage) == tensor * pipeline
        assert all(figures["resident"] > figures["kv_cache"] > 0 for figures in usage)
    finally:
        executor.shutdown()
    assert all_gone(executor.worker_pids)


@pytest.mark.full
@pytest.mark.parametrize(("tensor", "pipeline"), [(2, 1), (1, 2)])
def test_ranks_decide_nothing_for_themselves(folders, monkeypatch, tensor, pipeline):
    """Field cases 73 and 74: another time, other random numbers and less memory on one rank than on the other, and an
    interface that is not there in the variable that gloo reads.
    """
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nonsense0")
    model = folders["uneven"]
    single = SingleExecutor.from_context(
        MultiprocExecutorSettings(num_threads=1), make_context(model=str(model), **CONTEXT)
    )
    expected, _ = run_workload(model, Shared(single))
    executor = start(model, tensor, pipeline, worker=SKEWED, overlap="on")
    try:
        assert executor.determine_available_memory() <= psutil.virtual_memory().total // 2
        tokens, _ = run_workload(model, Shared(executor))
        check_same(tokens, expected)
    finally:
        executor.shutdown()


def step(number, request_id="r", new=False, **extensions):
    """A plan for one request of two prompt tokens."""
    known = NewRequestData(
        request_id=request_id, token_ids=[5, 6], num_prompt_tokens=2, params=GREEDY, block_ids=([1, 2],)
    )
    return SchedulerOutput(
        step=number,
        num_scheduled_tokens={request_id: 2 if new else 1},
        new_requests=[known] if new else [],
        extensions=extensions,
    )


def shared_memory_of(pid):
    """What a process has of /dev/shm, mapped or open."""
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    files = [os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir() if file.exists()]
    return [line for line in maps + files if "/dev/shm" in line]


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="reads /proc")
def test_no_shared_memory_is_used_that_could_be_too_small_or_left_behind(folders):
    """Field cases 64 and 65."""
    executor = start(folders["uneven"], 2, 1)
    try:
        executor.initialize_from_config(KVCacheConfig(8, 8, (tuple(executor.get_kv_cache_specs()),)))
        executor.execute_model(step(0, new=True)).result(PATIENCE)
        assert [shared_memory_of(pid) for pid in executor.worker_pids] == [[], []]
    finally:
        executor.shutdown()


def test_a_rank_that_raises_while_its_peer_waits_in_a_collective_fails_the_step(folders, tmp_path):
    """Field case 56."""
    executor = start(folders["uneven"], 2, 1, worker=FAULTY)
    try:
        told: list[BaseException] = []
        executor.register_failure_callback(told.append)
        executor.initialize_from_config(KVCacheConfig(8, 8, (tuple(executor.get_kv_cache_specs()),)))
        executor.collective_rpc("start_profile", str(tmp_path))
        output = executor.execute_model(step(0, new=True)).result(PATIENCE)
        assert output is not None
        assert output.request_ids == ["r"]
        assert [Path(file).name for file in executor.collective_rpc("stop_profile")] == ["rank0-0.json", "rank1-0.json"]
        with pytest.raises(EngineCoreError, match="rank 1 failed: PeculiarError"):
            executor.execute_model(step(1, faults={"1": "raise"})).result(PATIENCE)
        until(lambda: told)
        assert len(told) == 1
        assert all_gone(executor.worker_pids)
    finally:
        executor.shutdown()


def engine_settings(model, **more):
    multiproc = {"tensor_parallel_size": 2, "num_threads": 1, "overlap": "on"}
    return {
        "model": str(model), "dtype": "float32", "num_kv_blocks": 64, "block_size": 8, "max_model_len": 160,
        "max_num_seqs": 6, "executor": {"use": "multiproc", "multiproc": multiproc}, **more,
    }  # fmt: skip


def test_asyncio_over_zmq_and_the_death_of_a_rank_below_it(folders):
    """The tree of front end, core and ranks: the same tokens, and a rank's death reaches whoever streams."""
    model = folders["one_kv_head"]
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, detokenize=False)
    long = SamplingParams(temperature=0, max_tokens=150, ignore_eos=True, detokenize=False)
    inputs = prompts()[:3]
    single = {"use": "single", "single": {"num_threads": 1}}
    with LLM(**engine_settings(model, executor=single)) as llm:
        expected = [list(o.outputs[0].token_ids) for o in llm.generate(inputs, params, use_tqdm=False)]

    async def last(stream):
        return [list(output.outputs[0].token_ids) async for output in stream][-1]

    async def run():
        async with AsyncLLM(**engine_settings(model, transport={"use": "zmq"})) as llm:
            streams = [llm.generate(prompt, params, str(number)) for number, prompt in enumerate(inputs)]
            assert await asyncio.gather(*map(last, streams)) == expected
            tree = [p for p in psutil.Process().children(recursive=True) if "enginecore" in " ".join(p.cmdline())]
            (rank,) = [process for process in tree if "enginecore-rank-1" in process.cmdline()]
            rank.kill()
            with pytest.raises(EngineDeadError):
                await last(llm.generate(inputs[0], long, "long"))
            return [process.pid for process in tree]

    pids = asyncio.run(asyncio.wait_for(run(), 4 * PATIENCE))
    until(lambda: all_gone(pids))


def test_what_cannot_be_shared_out_is_refused_before_a_process_starts(folders):
    for tensor, pipeline, message in (
        (10, 1, "at most 9 ranks can share this model"),
        (1, 4, "the model has 3 layers"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            start(folders["uneven"], tensor, pipeline)


@pytest.mark.parametrize(("rank", "what"), [(1, "kill"), (0, "join, kill")])
def test_a_rank_that_is_killed_in_the_rendezvous_is_one_clear_error(folders, tmp_path, monkeypatch, rank, what):
    """Field cases 55, 62 and 74: the others would wait for it for as long as `startup_timeout`, ten minutes."""
    monkeypatch.setenv(fake_worker.FAULTS, json.dumps({rank: what}))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before, began = set(psutil.Process().children(recursive=True)), time.monotonic()
    with pytest.raises(
        EngineCoreError, match=rf"^rank {rank} \(process \d+\) was killed by SIGKILL before it was ready"
    ):
        start(folders["uneven"], 2, 1, worker=MEETING)
    assert time.monotonic() - began < 2 * PATIENCE
    assert set(psutil.Process().children(recursive=True)) <= before
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_model_is_the_same_as_that_of_single(folders, tmp_path):
    with pytest.raises(ModelError, match="is not found"):
        start(tmp_path / "nothing", 1, 1)
    broken = tmp_path / "broken"
    shutil.copytree(folders["uneven"], broken)
    config = (broken / "config.json").read_text()
    (broken / "config.json").write_text(config.replace('"intermediate_size": 88', '"intermediate_size": 80'))
    with pytest.raises(ModelError, match=r"has shape \[.*\], but the model's configuration asks for"):
        start(broken, 1, 1)
