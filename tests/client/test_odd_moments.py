"""What no well-behaved program does, and some do: each of these once hung, leaked or broke."""

import asyncio
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from enginecore import LLM, AsyncLLM, SamplingParams
from enginecore.client import attach_client, make_client
from enginecore.errors import ConfigurationError, EngineDeadError, UtilityError
from tests.client.starting import DEADLINE, Traces, is_gone, load, python, running, wait_until
from tests.core.engines import request

SLOW = {"executor.oracle.step_time": 0.01, "num_kv_blocks": 4096}
PARAMS = SamplingParams(temperature=0, max_tokens=2000, ignore_eos=True, detokenize=False)


@pytest.fixture(autouse=True)
def traces():
    traces = Traces()
    yield traces
    traces.check()


async def last_reason(stream):
    reason = None
    async for output in stream:
        reason = output.outputs[0].finish_reason
    return reason


def test_a_stream_of_a_closed_loop_can_be_aborted_and_holds_nobody_up():
    llm: Any = AsyncLLM.from_loaded(load(**SLOW))
    loop = asyncio.new_event_loop()
    old = llm.generate([1], PARAMS, "old")
    loop.run_until_complete(anext(old))
    waiting = loop.create_task(anext(old))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    llm.abort("old")

    async def main():
        assert (await llm.get_stats()).num_running == 0
        stream = llm.generate([2], PARAMS)
        await anext(stream)
        os.kill(llm._client.engine_core_pid, signal.SIGKILL)
        with pytest.raises(EngineDeadError, match="SIGKILL"):
            await asyncio.wait_for(last_reason(stream), DEADLINE)

    asyncio.run(main())
    llm.shutdown()
    waiting._log_destroy_pending = False  # type: ignore[attr-defined]


def test_drains_at_the_same_time_let_all_finish():
    async def main(llm):
        stream = llm.generate([1], SamplingParams(temperature=0, max_tokens=100, ignore_eos=True, detokenize=False))
        await anext(stream)
        drains = asyncio.gather(llm.drain(), llm.drain())
        assert await last_reason(stream) == "length"
        await drains

    asyncio.run(main(AsyncLLM.from_loaded(load(**SLOW, shutdown_timeout=DEADLINE))))


def test_a_drain_that_is_cancelled_ends_all_at_once():
    async def main(llm):
        stream = llm.generate([1], PARAMS)
        await anext(stream)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(llm.drain(), 0.2)
        assert await last_reason(stream) == "abort"

    began = time.monotonic()
    asyncio.run(main(AsyncLLM.from_loaded(load(**SLOW, shutdown_timeout=600.0))))
    assert time.monotonic() - began < 300.0


EXEC = """
import os, sys
from tests.client.starting import load
from enginecore.client import make_client
client = make_client(load())
print(client.engine_core_pid, flush=True)
os.execv(sys.executable, [sys.executable, "-c", "import sys; sys.stdin.read()"])
"""


def test_a_front_end_that_becomes_another_program_takes_its_core_along():
    front_end = python(EXEC, stdin=subprocess.PIPE)
    pid = int(front_end.stdout.readline())
    wait_until(lambda: is_gone(pid), "the engine core is gone")
    assert front_end.poll() is None
    front_end.communicate("")


HANDLER = """
import signal, threading, os
from enginecore import LLM, SamplingParams
from enginecore.errors import EngineDeadError
oracle = {"use": "oracle", "oracle": {"step_time": 0.01}}
llm = LLM("oracle", executor=oracle, transport={"use": "zmq"}, max_model_len="auto", num_kv_blocks=4096)
signal.signal(signal.SIGTERM, lambda *_: llm.shutdown())
threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGTERM]).start()
params = SamplingParams(temperature=0, max_tokens=60000, ignore_eos=True, detokenize=False)
try:
    outputs = llm.generate([[1]], params, use_tqdm=False)
    print(outputs[0].outputs[0].finish_reason)
except EngineDeadError:
    print("dead")
"""


def test_a_signal_handler_may_shut_down_in_the_middle_of_a_wait():
    done = python(HANDLER)
    out, err = done.communicate(timeout=DEADLINE * 2)
    assert done.returncode == 0, err
    assert out.strip() in ("abort", "dead")


def test_timeouts_may_be_longer_than_a_month():
    with running(startup_timeout=1e7, shutdown_timeout=3e6) as client:
        client.add_request(request("r", max_tokens=1))
        assert client.get_output().outputs


def test_an_error_too_large_for_the_transport_is_shortened():
    with running(**{"transport.zmq.max_message_size": 4096}) as client:
        with pytest.raises(UtilityError, match="no method 'xxx"):
            client.call_utility("collective_rpc", "x" * 3000)
        ids = [f"{number:0200}" for number in range(100)]
        client.abort_requests(ids)
        assert client.call_utility("is_alive") is True


def test_no_directory_for_temporary_files_at_all(monkeypatch):
    def none_is_usable():
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr("tempfile.gettempdir", none_is_usable)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    with running() as client:
        assert client.call_utility("is_alive") is True


def test_a_path_object_on_the_path_is_left_out_as_imports_do(monkeypatch):
    monkeypatch.setattr("sys.path", [pathlib.Path("/nowhere"), *sys.path])
    with running() as client:
        assert client.call_utility("is_alive") is True


def test_an_address_that_is_none():
    with pytest.raises(ConfigurationError, match=r"address must be what `address` of a client gave.*got \[1\]"):
        attach_client(load(), [1])  # type: ignore[arg-type]


def test_ctrl_c_twice_while_a_hung_core_is_shut_down_leaves_no_core():
    client: Any = make_client(load())
    pid = client.engine_core_pid
    os.kill(pid, signal.SIGSTOP)
    for delay in (0.3, 0.6):
        threading.Timer(delay, os.kill, [os.getpid(), signal.SIGINT]).start()
    for _ in range(2):
        try:
            client.shutdown()
            time.sleep(1.0)
        except KeyboardInterrupt:
            continue
    client.shutdown()
    wait_until(lambda: is_gone(pid), "the engine core is gone")


def test_outputs_of_llm_in_a_process_are_those_of_one_without():
    params = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True, detokenize=False)
    tokens = []
    for transport in ("inproc", "zmq"):
        with LLM.from_loaded(load(transport=transport)) as llm:
            outputs = llm.generate([[5, 6, 7], [8]], params, use_tqdm=False)
            tokens.append([output.outputs[0].token_ids for output in outputs])
    assert tokens[0] == tokens[1]
