"""Worker processes that die, raise, hang and answer late: everybody hears of it at once, and nothing is left."""

import gc
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path

import psutil
import pytest

from enginecore.errors import EngineCoreError, EngineDeadError, RemoteError
from enginecore.interfaces import KVCacheConfig
from enginecore.messages import SchedulerOutput
from enginecore_torch.multiproc.control import RunStep
from enginecore_torch.multiproc.executor import MultiprocExecutor
from enginecore_torch.multiproc.workers import WorkerGroup
from enginecore_torch.settings import MultiprocExecutorSettings
from tests.torch import fake_worker
from tests.torch.tiny import make_context

FAKE = "tests.torch.fake_worker:main"
PATIENCE = 30.0  # seconds, where one is expected


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it has not come"
        time.sleep(0.01)


def all_gone(pids):
    return not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids)


def plan(step=0, **extensions):
    return SchedulerOutput(step=step, num_scheduled_tokens={"r": 1}, extensions=extensions)


@pytest.fixture
def start(tiny_folder):
    """Starts executors on fake workers, and checks that nothing is left of them."""
    made = []

    def start(tensor=2, pipeline=1, **settings):
        chosen = MultiprocExecutorSettings(
            tensor_parallel_size=tensor, pipeline_parallel_size=pipeline, num_threads=1, **settings
        )
        made.append(MultiprocExecutor(chosen, make_context(model=str(tiny_folder)), worker=FAKE))
        return made[-1]

    yield start
    for executor in made:
        executor.shutdown()
        assert all_gone(executor.worker_pids)
        assert not executor.directory.exists()


@pytest.fixture
def faults(monkeypatch):
    """Faults at start, by rank."""
    return lambda **by_rank: monkeypatch.setenv(
        fake_worker.FAULTS, json.dumps({name.removeprefix("rank"): what for name, what in by_rank.items()})
    )


# -- what it says about itself -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tensor", "pipeline", "overlap", "depth", "feeds"),
    [
        (1, 1, "on", 2, True),
        (1, 1, "off", 1, True),
        (2, 1, "on", 2, True),
        (1, 2, "auto", 2, False),
        (1, 3, "on", 3, False),
        (1, 2, "off", 1, False),
    ],
)
def test_what_it_declares(start, tensor, pipeline, overlap, depth, feeds):
    executor = start(tensor, pipeline, overlap=overlap)
    assert executor.capabilities.max_concurrent_batches == depth
    assert executor.capabilities.feeds_tokens == feeds
    assert executor.capabilities.in_order
    info = executor.model_info
    assert (info.max_model_len, info.vocab_size, info.eos_token_ids) == (160, 211, (2,))
    assert (info.dtype, info.device) == ("float32", "cpu")


@pytest.mark.parametrize(("usable", "depth"), [(2, 1), (3, 2)])
def test_auto_overlaps_where_a_cpu_is_left_for_scheduling(start, monkeypatch, caplog, usable, depth):
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: usable)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(usable)), raising=False)
    with caplog.at_level(logging.INFO):
        assert start(2).capabilities.max_concurrent_batches == depth
    assert f"{depth} steps in flight at most" in caplog.text


def test_the_kv_cache_is_that_of_all_ranks_together(start):
    executor = start(2, 2)
    specs = executor.get_kv_cache_specs()
    assert {name: spec.page_size_bytes for name, spec in specs.items()} == {
        "model.layers.0": 1000 + 1001,
        "model.layers.1": 1000 + 1001,
        "model.layers.2": 1002 + 1003,
    }
    assert executor.determine_available_memory() == 1_000_000 - 3, "the ranks share the machine's memory"
    executor.initialize_from_config(KVCacheConfig(4, 8, (tuple(specs),)))
    assert executor.execute_model(plan()).result(PATIENCE).request_ids == ["r"]


def test_with_devices_of_their_own_the_rank_with_room_for_the_fewest_blocks_decides(start, monkeypatch):
    monkeypatch.setenv(fake_worker.DEVICE, "cuda:N")
    executor = start(2, 2)
    assert executor.model_info.device == "cuda:0, cuda:1, cuda:2, cuda:3"
    # of three layers the first stage has two: its second rank has room for 999,999 // (2 * 1001) blocks
    assert executor.determine_available_memory() == 499 * (2 * 1000 + 2 * 1001 + 1002 + 1003)


def test_what_is_sampled_is_told_to_the_first_stage_before_its_next_step(start):
    executor = start(1, 2)
    for step in (4, 5, 6):
        executor.execute_model(plan(step)).result(PATIENCE)
    assert executor.collective_rpc("learned")[0] == [[4, [4]], [5, [5]]]


START = f"""
import sys, time
from enginecore_torch.settings import MultiprocExecutorSettings
from enginecore_torch.multiproc.executor import MultiprocExecutor
from enginecore.clock import RealClock
from enginecore.plugin import ExecutorContext
context = ExecutorContext(model=sys.argv[1], dtype="float32", device="cpu", max_model_len=None, block_size=8,
    max_num_seqs=8, max_num_batched_tokens=64, seed=0, clock=RealClock())
settings = MultiprocExecutorSettings(tensor_parallel_size=2, num_threads=1)
executor = MultiprocExecutor(settings, context, worker="{FAKE}")
print(*executor.worker_pids, executor.directory, flush=True)
"""


def test_the_executor_s_own_process_has_no_need_of_torch(tiny_folder):
    code = START + "executor.shutdown()\nprint('torch' in sys.modules)"
    command = [sys.executable, "-c", code, str(tiny_folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.stdout.endswith("\nFalse\n"), done.stderr


# -- start -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("raise", "rank 1 failed: PeculiarError: 17 at the fake worker"),
        ("exit", r"rank 1 \(process \d+\) exited with code 3 before it was ready"),
        ("segfault", r"rank 1 \(process \d+\) was killed by SIGSEGV before it was ready"),
    ],
)
def test_a_rank_that_cannot_start_is_one_clear_error(start, faults, what, message):
    """Field case 62."""
    faults(rank1=what, rank0="sleep")
    before = set(psutil.Process().children(recursive=True))
    with pytest.raises(EngineCoreError, match=message) as raised:
        start()
    if what == "raise":
        assert isinstance(raised.value.__cause__, RemoteError)
        assert "in misbehave" in str(raised.value.__cause__)
    assert set(psutil.Process().children(recursive=True)) <= before


def test_a_rank_that_does_not_get_ready_is_named_and_ended(start, faults):
    """Field cases 62 and 74."""
    faults(rank1="ignore")
    with pytest.raises(EngineCoreError, match=r"rank 1 \(process \d+\) did not load .* startup_timeout = 1 seconds"):
        start(startup_timeout=1.0)
    assert [child for child in psutil.Process().children() if "enginecore-rank" in " ".join(child.cmdline())] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_start_leaves_nobody_behind(tiny_folder, faults, number):
    """Field case 61."""
    faults(rank0="ignore", rank1="ignore")
    code = (
        "import signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
        "from enginecore import LLM\n"
        "from enginecore.plugin import Component\n"
        "from enginecore_torch.settings import MultiprocExecutorSettings\n"
        "from enginecore_torch.multiproc.executor import MultiprocExecutor\n"
        f"make = lambda settings, context: MultiprocExecutor(settings, context, worker='{FAKE}')\n"
        "component = Component(kind='executor', name='fake', factory=make, settings=MultiprocExecutorSettings)\n"
        "print('go', flush=True)\n"
        "LLM(sys.argv[1], components=[component], executor={'use': 'fake', 'fake': {'tensor_parallel_size': 2}})\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tiny_folder)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"go\n"
        until(lambda: len(psutil.Process(process.pid).children()) == 2)
        ranks = [child.pid for child in psutil.Process(process.pid).children()]
        process.send_signal(number)
        assert process.wait(PATIENCE) != 0
        until(lambda: all_gone(ranks))
    finally:
        process.kill()
        process.communicate()


# -- death -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def told():
    """A failure callback, and what it was told."""
    calls: list[BaseException] = []
    return calls


def check_dead(executor, told, message):
    until(lambda: told)
    assert message in str(told[0])
    for call in (
        executor.check_health,
        lambda: executor.execute_model(plan()),
        lambda: executor.collective_rpc("echo"),
        executor.determine_available_memory,
    ):
        with pytest.raises(EngineDeadError, match="the executor has failed"):
            call()
    assert all_gone(executor.worker_pids)
    executor.register_failure_callback(told.append)
    assert len(told) == 2, "once, and once for the one that came late"
    assert told[0] is told[1]


@pytest.mark.parametrize("rank", [0, 1])
def test_the_death_of_an_idle_rank_is_seen_at_once(start, told, rank):
    """Field case 55 (a)."""
    executor = start()
    executor.register_failure_callback(told.append)
    os.kill(executor.worker_pids[rank], signal.SIGKILL)
    check_dead(executor, told, f"rank {rank} (process {executor.worker_pids[rank]}) was killed by SIGKILL")


@pytest.mark.parametrize("rank", [0, 1])
def test_the_death_of_a_rank_fails_the_steps_in_flight(start, told, rank):
    """Field case 55 (b)."""
    executor = start(overlap="on")
    executor.register_failure_callback(told.append)
    running = [executor.execute_model(plan(step, seconds=1000)) for step in (0, 1)]
    os.kill(executor.worker_pids[rank], signal.SIGKILL)
    for future in running:
        with pytest.raises(EngineDeadError, match=f"rank {rank} .* SIGKILL"):
            future.result(PATIENCE)
    check_dead(executor, told, "SIGKILL")


@pytest.mark.parametrize("rank", [0, 1])
def test_the_death_of_a_rank_fails_the_calls_that_wait(start, told, rank):
    """Field case 55 (c)."""
    executor = start()
    executor.register_failure_callback(told.append)
    with pytest.raises(EngineDeadError, match=f"rank {rank} .* SIGKILL"):
        executor.collective_rpc("fault", rank, "kill", timeout=PATIENCE)
    check_dead(executor, told, "SIGKILL")


def test_a_death_before_anybody_asked_to_be_told_is_told(start, told):
    """Field case 55 (d)."""
    executor = start()
    os.kill(executor.worker_pids[1], signal.SIGKILL)
    until(lambda: all_gone(executor.worker_pids))
    executor.register_failure_callback(told.append)
    until(lambda: told)
    assert len(told) == 1


@pytest.mark.parametrize("rank", [0, 1])
def test_whichever_rank_raises_fails_the_step_with_its_own_traceback(start, told, rank):
    executor = start()
    executor.register_failure_callback(told.append)
    others = {str(1 - rank): "sleep"}
    with pytest.raises(EngineCoreError, match=f"rank {rank} failed: PeculiarError: 17 at the fake worker") as raised:
        executor.execute_model(plan(faults={str(rank): "raise", **others})).result(PATIENCE)
    assert "PeculiarError(17" in str(raised.value.__cause__)
    check_dead(executor, told, "PeculiarError")


def test_a_step_that_stalls_fails_after_execute_timeout(start, told):
    executor = start(execute_timeout=1.0)
    executor.register_failure_callback(told.append)
    with pytest.raises(EngineDeadError, match="not finished within execute_timeout = 1 seconds by the 2 ranks"):
        executor.execute_model(plan(faults={"1": "sleep", "0": "sleep"})).result(PATIENCE)
    check_dead(executor, told, "execute_timeout")


def test_a_rank_that_is_asked_prints_where_it_hangs(start, capfd):
    executor = start()
    executor.execute_model(plan(faults={"1": "sleep"})).result(PATIENCE)
    printed: list[str] = []

    def found():
        os.kill(executor.worker_pids[1], signal.SIGUSR1)  # again and again: it may not be there yet
        printed.append(capfd.readouterr().err)
        return "in misbehave" in "".join(printed)

    until(found)


def test_a_stopped_rank_is_a_stalled_one_also_for_plans_that_fill_its_socket(start, told):
    executor = start(execute_timeout=1.0)
    executor.register_failure_callback(told.append)
    os.kill(executor.worker_pids[1], signal.SIGSTOP)
    executor.execute_model(plan(0, faults={"0": "sleep"}))
    large = plan(1, words="x" * (1 << 22))
    with pytest.raises(EngineDeadError, match="execute_timeout"):
        executor.execute_model(large).result(PATIENCE)
    check_dead(executor, told, "execute_timeout")


def order(scheduled):
    return lambda number: RunStep(number, scheduled, [])


def test_a_step_is_timed_from_the_end_of_the_one_before():
    seconds = [0.0]
    payload = {"settings": {"tensor_parallel_size": 1, "pipeline_parallel_size": 1}}
    group = WorkerGroup(FAKE, payload, 1, step_timeout=100.0, on_output=lambda output: None, now=lambda: seconds[0])
    try:
        group.await_ready(PATIENCE)
        first, second = (group.send_step(order(plan(step, seconds=0.3))) for step in range(2))
        seconds[0] = 99.0
        first.result(PATIENCE)
        seconds[0] = 150.0
        second.result(PATIENCE)
        hanging = group.send_step(order(plan(3, faults={"0": "sleep"})))
        seconds[0] = 251.0
        with pytest.raises(EngineDeadError, match="execute_timeout = 100 seconds"):
            hanging.result(PATIENCE)
    finally:
        group.shutdown()


# -- calls -------------------------------------------------------------------------------------------------------------


def test_a_call_gives_one_result_per_rank(start):
    assert start(2, 2).collective_rpc("echo", "x", {"y": [1]}) == [[rank, "x", {"y": [1]}] for rank in range(4)]


def test_a_call_that_fails_early_leaves_no_answer_for_the_next(start):
    """Field case 58."""
    executor = start()
    with pytest.raises(EngineCoreError, match="rank 0 failed: PeculiarError: 18 at rank 0"):
        executor.collective_rpc("late", 0.3, "late")
    assert executor.collective_rpc("echo", "next") == [[0, "next"], [1, "next"]]
    assert executor.execute_model(plan(7)).result(PATIENCE).step == 7


def test_a_call_that_is_not_answered_in_time_says_so_and_leaves_no_answer_for_the_next(start):
    """Field case 58."""
    executor = start()
    with pytest.raises(TimeoutError, match=r"'fault' within 0.1 s"):
        _slow_call(executor)
    assert executor.collective_rpc("echo", "next") == [[0, "next"], [1, "next"]]


def _slow_call(executor):
    executor.execute_model(plan(0, seconds=0.5))
    return executor.collective_rpc("fault", 2, "", timeout=0.1)


def test_a_method_that_is_not_there_is_named(start):
    with pytest.raises(AttributeError, match="'nonsense'"):
        start().collective_rpc("nonsense")


def test_what_cannot_be_sent_fails_its_call_only(start):
    executor = start()
    with pytest.raises(TypeError):
        executor.collective_rpc("echo", object())
    with pytest.raises(EngineCoreError, match=r"rank \d failed: TypeError"):
        executor.collective_rpc("unspeakable")
    assert executor.collective_rpc("echo") == [[0], [1]]


def test_a_step_whose_future_was_cancelled_hurts_nobody(start):
    executor = start()
    future = executor.execute_model(plan(0, seconds=0.2))
    assert future.cancel()
    with pytest.raises(CancelledError):
        future.result(0)
    assert executor.execute_model(plan(1)).result(PATIENCE).step == 1


# -- the end -----------------------------------------------------------------------------------------------------------


def test_shutdown_may_come_often_from_everywhere_and_while_ranks_hang(start, told):
    """Field case 63."""
    executor = start()
    executor.register_failure_callback(told.append)
    running = executor.execute_model(plan(faults={"0": "ignore", "1": "ignore"}))
    threads = [threading.Thread(target=executor.shutdown) for _ in range(2)]
    for thread in threads:
        thread.start()
    executor.shutdown()
    for thread in threads:
        thread.join(PATIENCE)
    assert all_gone(executor.worker_pids)
    with pytest.raises(EngineDeadError, match="was shut down"):
        running.result(PATIENCE)
    with pytest.raises(EngineDeadError, match="was shut down"):
        executor.execute_model(plan())
    assert told == [], "a shutdown is no failure"


def test_a_callback_may_shut_down(start):
    executor = start()
    done = threading.Event()

    def end(error):
        executor.shutdown()
        done.set()

    executor.register_failure_callback(end)
    os.kill(executor.worker_pids[0], signal.SIGKILL)
    assert done.wait(PATIENCE)


def test_two_engines_side_by_side_and_one_after_another(start):
    """Field case 75."""
    first, second = start(), start(1, 2)
    first.execute_model(plan(1)).result(PATIENCE)
    second.execute_model(plan(2)).result(PATIENCE)
    os.kill(first.worker_pids[0], signal.SIGKILL)
    until(lambda: all_gone(first.worker_pids))
    assert second.execute_model(plan(3)).result(PATIENCE).step == 3
    assert start().execute_model(plan(4)).result(PATIENCE).step == 4


@pytest.mark.parametrize(
    ("ending", "code"),
    [("time.sleep(1000)", -signal.SIGKILL), ("", 0), ("import os; os._exit(5)", 5), ("raise RuntimeError", 1)],
)
def test_ranks_do_not_outlive_the_process_that_started_them(tiny_folder, ending, code):
    """Field case 60."""
    process = subprocess.Popen(
        [sys.executable, "-c", START + ending, str(tiny_folder)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        *pids, directory = process.stdout.readline().split()
        if code == -signal.SIGKILL:
            process.kill()
        assert process.wait(PATIENCE) == code
        until(lambda: all_gone(map(int, pids)))
        until(lambda: not Path(directory).exists())
    finally:
        process.kill()
        process.communicate()


def test_an_executor_that_is_dropped_ends_at_shutdown_of_its_finaliser(start):
    """Field case 63."""
    executor = start()
    pids = executor.worker_pids
    holder = {"executor": executor}

    class Engine:
        def __del__(self) -> None:
            holder["executor"].shutdown()

    engine = Engine()
    del engine
    gc.collect()
    assert all_gone(pids)


@pytest.mark.parametrize("seconds", [0.0, 1.0], ids=["idle", "in a slow step"])
def test_ranks_that_wait_and_the_executor_use_no_cpu(start, seconds):
    """Field case 67."""
    executor = start()
    processes = [psutil.Process(pid) for pid in (*executor.worker_pids, os.getpid())]
    running = executor.execute_model(plan(seconds=seconds))
    before = [sum(process.cpu_times()[:2]) for process in processes]
    time.sleep(1.0)
    used = [sum(process.cpu_times()[:2]) - start for process, start in zip(processes, before, strict=True)]
    assert max(used) < 0.2
    running.result(PATIENCE)
