"""The end of an engine core, wished for or not: everybody hears of it, nothing is left (field cases 63, 78, 79, 92)."""

import asyncio
import os
import signal
import threading

import pytest

from enginecore.errors import EngineDeadError, InvalidRequestError, UtilityError
from enginecore.messages import EngineCoreOutput, FinishReason
from tests.client.starting import (
    DEADLINE,
    Traces,
    is_gone,
    python,
    running,
    running_async,
    wait_until,
)
from tests.core.engines import request

SLOW = {"executor.oracle.step_time": 0.02}
ROOM = {"num_kv_blocks": 4096}


@pytest.fixture(autouse=True)
def traces():
    traces = Traces()
    yield traces
    traces.check()


def endless(name):
    return request(name, prompt=4, max_tokens=None)


def read_to_the_end(client):
    """All outputs until the client says that the engine is dead, by request; and the error."""
    outputs: dict[str, list[EngineCoreOutput]] = {}
    while True:
        try:
            for output in client.get_output().outputs:
                outputs.setdefault(output.request_id, []).append(output)
        except EngineDeadError as error:
            return outputs, error


def ends(outputs):
    """Each request's finish reasons: there must be one, in its last output."""
    assert all(o.finish_reason is None for given in outputs.values() for o in given[:-1])
    return {name: given[-1].finish_reason for name, given in outputs.items()}


def refusal_of(client, utility):
    try:
        client.call_utility(utility)
    except InvalidRequestError as error:
        return str(error)
    return None


# -- killed ----------------------------------------------------------------------------------------------------------


def test_sigkill_while_outputs_stream():
    with running(**SLOW, **ROOM) as client:
        client.add_request(endless("r"))
        assert client.get_output().outputs
        os.kill(client.engine_core_pid, signal.SIGKILL)
        _, error = read_to_the_end(client)
        assert "was killed by SIGKILL and reported no error" in str(error)
        for call in (client.get_output, lambda: client.add_request(request("s")), lambda: client.call_utility("x")):
            with pytest.raises(EngineDeadError, match="SIGKILL"):
                call()
        client.abort_requests(["r"])  # of no use, and no harm


@pytest.mark.parametrize("what", ["an output", "a utility"])
def test_sigkill_while_somebody_waits(tmp_path, what):
    """Field case 78: queued, or in a control call, with the engine core busy for a minute."""
    marker = tmp_path / "stuck"
    settings = {"executor.stuck-in-step.marker": str(marker)}
    with running(executor="stuck-in-step", component="STUCK_IN_STEP", **settings) as client:
        client.add_request(request("r"))
        wait_until(marker.exists, "stuck")
        killer = threading.Timer(0.2, os.kill, [client.engine_core_pid, signal.SIGKILL])
        killer.start()
        with pytest.raises(EngineDeadError, match="SIGKILL"):
            client.get_output() if what == "an output" else client.call_utility("is_alive")
        killer.join(DEADLINE)


def test_sigkill_with_all_kinds_of_waiters_on_an_event_loop(tmp_path):
    marker = tmp_path / "stuck"
    settings = {"executor.stuck-in-step.marker": str(marker)}

    async def main(client):
        assert await asyncio.wait_for(alone(client), DEADLINE)
        client.add_request(request("r"))
        reader = asyncio.create_task(client.get_output())
        while not marker.exists():
            await asyncio.sleep(0.01)
        calls = [asyncio.create_task(client.call_utility("is_alive")) for _ in range(3)]
        await asyncio.sleep(0)
        os.kill(client.engine_core_pid, signal.SIGKILL)
        done = await asyncio.wait_for(asyncio.gather(reader, *calls, return_exceptions=True), DEADLINE)
        assert [type(error) for error in done] == [EngineDeadError] * 4
        assert all("SIGKILL" in str(error) and error.__cause__ is not None for error in done)
        with pytest.raises(EngineDeadError, match="SIGKILL"):
            await client.get_output()
        with pytest.raises(EngineDeadError, match="SIGKILL"):
            await client.call_utility("is_alive")
        with pytest.raises(EngineDeadError, match="SIGKILL"):
            client.add_request(request("s"))

    async def alone(client):
        reader = asyncio.create_task(client.get_output())
        alive = await client.call_utility("is_alive")
        reader.cancel()
        return alive

    with running_async(executor="stuck-in-step", component="STUCK_IN_STEP", **settings) as client:
        asyncio.run(main(client))
        assert "SIGKILL" in str(client.failure)


def test_a_core_that_is_killed_idle_is_noticed_without_a_call():
    with running_async() as client:
        assert client.failure is None
        os.kill(client.engine_core_pid, signal.SIGKILL)
        wait_until(lambda: client.failure is not None, "the failure is seen")


def test_a_long_step_is_no_death():
    """Field case 92: liveness is the process, not its progress."""
    with running(**{"executor.oracle.step_time": 1.5}) as client:
        client.add_request(request("r", max_tokens=1))
        assert client.get_output().outputs[0].finish_reason is FinishReason.LENGTH
        assert client.call_utility("is_alive") is True


def test_a_stopped_core_goes_on_where_it_was():
    with running(**SLOW, **ROOM) as client:
        client.add_request(request("r", max_tokens=20))
        os.kill(client.engine_core_pid, signal.SIGSTOP)
        threading.Timer(0.3, os.kill, [client.engine_core_pid, signal.SIGCONT]).start()
        tokens: list[int] = []
        while len(tokens) < 20:
            tokens += [token for output in client.get_output().outputs for token in output.new_token_ids]
        assert len(tokens) == 20


# -- failed ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fail", "die"])
def test_a_step_that_fails_is_told_with_its_traceback(kind):
    with running(**{"executor.oracle.faults": [{"kind": kind, "step": 2}]}) as client:
        client.add_request(endless("r"))
        _, error = read_to_the_end(client)
        assert "the oracle was set to fail at step 2" in str(error)
        assert "OracleFault" in str(error.__cause__)
        pid = client.engine_core_pid
        wait_until(lambda: is_gone(pid), "the engine core ends by itself")


def test_an_executor_that_dies_while_nothing_runs_ends_the_engine():
    with running(executor="fails-idle", component="FAILS_IDLE") as client:
        assert client.call_utility("collective_rpc", "fail_soon") == []
        client.add_request(request("r", max_tokens=1 << 20))
        _, error = read_to_the_end(client)
        assert "worker 1 was killed" in str(error)


def test_a_worker_that_hangs_can_be_left_alone(tmp_path):
    marker = tmp_path / "hangs"
    settings = {"executor.never-done.marker": str(marker)}
    with running(executor="never-done", component="NEVER_DONE", **settings) as client:
        client.add_request(request("r"))
        wait_until(marker.exists, "it hangs")
        pid = client.engine_core_pid
    assert is_gone(pid)


def test_a_fault_of_one_request_is_its_own():
    faults = [{"kind": "error", "request_id": "bad"}]
    with running(**{"executor.oracle.faults": faults}) as client:
        for name in ("bad", "good"):
            client.add_request(request(name, max_tokens=3))
        client.add_request(request("empty", prompt=0))
        outputs: dict[str, list[EngineCoreOutput]] = {}
        while not (given := client.get_output()).idle:
            for output in given.outputs:
                outputs.setdefault(output.request_id, []).append(output)
        assert ends(outputs) == {"bad": FinishReason.ERROR, "good": FinishReason.LENGTH, "empty": FinishReason.ERROR}
        assert outputs["empty"][0].error == "request 'empty': the prompt is empty: it must have at least one token"
        with pytest.raises(InvalidRequestError, match="no utility 'nix'"):
            client.call_utility("nix")
        with pytest.raises(UtilityError, match="no method 'nix'"):
            client.call_utility("collective_rpc", "nix")
        with pytest.raises(InvalidRequestError, match="an argument of 'collective_rpc' cannot be sent"):
            client.call_utility("collective_rpc", lambda: 0)
        assert client.call_utility("is_alive") is True


# -- shut down -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["the client", "SIGTERM", "SIGINT"])
def test_without_time_to_drain_each_request_is_aborted(by):
    """Field case 79: three streams and two that wait, timeout 0."""
    with running(**SLOW, **ROOM, max_num_seqs=3) as client:
        names = [f"r{n}" for n in range(5)]
        for name in names:
            client.add_request(endless(name))
        seen: set[str] = set()
        while len(seen) < 3:
            seen |= {output.request_id for output in client.get_output().outputs}
        if by == "the client":
            client.shutdown()
        else:
            os.kill(client.engine_core_pid, getattr(signal, by))
        outputs, error = read_to_the_end(client)
        assert ends(outputs) == dict.fromkeys(names, FinishReason.ABORT)
        assert "the engine core was shut down" in str(error)


@pytest.mark.parametrize("by", ["the client", "SIGTERM"])
def test_with_time_to_drain_all_finish(by):
    with running(**SLOW, **ROOM, max_num_seqs=3, shutdown_timeout=60.0) as client:
        names = [f"r{n}" for n in range(5)]
        for name in names:
            client.add_request(request(name, max_tokens=10))
        assert client.get_output().outputs
        if by == "the client":
            client.shutdown()
        else:
            os.kill(client.engine_core_pid, signal.SIGTERM)
        outputs, _ = read_to_the_end(client)
        assert ends(outputs) == dict.fromkeys(names, FinishReason.LENGTH)


def test_what_is_left_at_the_deadline_is_aborted():
    with running(**SLOW, **ROOM, shutdown_timeout=0.5) as client:
        client.add_request(request("short", max_tokens=2))
        client.add_request(endless("long"))
        client.get_output()
        client.shutdown()
        outputs, _ = read_to_the_end(client)
        assert ends(outputs) == {"short": FinishReason.LENGTH, "long": FinishReason.ABORT}


def test_a_second_signal_cuts_the_draining_short():
    with running(**SLOW, **ROOM, shutdown_timeout=600.0) as client:
        client.add_request(endless("r"))
        client.get_output()
        os.kill(client.engine_core_pid, signal.SIGTERM)
        wait_until(lambda: refusal_of(client, "is_alive"), "the signal has been handled")
        why = "the engine core shuts down: it received SIGTERM"
        assert refusal_of(client, "is_alive") == f"no utility 'is_alive': {why}"
        client.add_request(request("late"))
        refusal_of(client, "is_alive")  # it has been refused when this returns
        os.kill(client.engine_core_pid, signal.SIGTERM)
        outputs, _ = read_to_the_end(client)
        assert ends(outputs) == {"r": FinishReason.ABORT, "late": FinishReason.ERROR}
        assert outputs["late"][0].error == f"no new requests: {why}"


def test_an_event_loop_drains_without_standing_still():
    async def main(client):
        client.add_request(request("r", max_tokens=10))
        reasons: list[FinishReason | None] = []
        ticks = 0

        async def read():
            while True:
                reasons.extend(output.finish_reason for output in (await client.get_output()).outputs)

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking, reading = asyncio.create_task(tick()), asyncio.create_task(read())
        await asyncio.sleep(0)
        before = ticks
        await asyncio.wait_for(client.drain(), DEADLINE)
        assert ticks > before + 10
        with pytest.raises(EngineDeadError, match="shut down"):
            await asyncio.wait_for(reading, DEADLINE)
        ticking.cancel()
        assert reasons[-1] is FinishReason.LENGTH

    with running_async(**SLOW, shutdown_timeout=60.0) as client:
        asyncio.run(main(client))


def test_shutdown_from_everywhere_at_once():
    """Field case 63: three times, from two threads."""
    with running() as client:
        pid = client.engine_core_pid
        threads = [threading.Thread(target=client.shutdown) for _ in range(2)]
        for thread in threads:
            thread.start()
        client.shutdown()
        assert is_gone(pid)
        for thread in threads:
            thread.join(DEADLINE)
        with pytest.raises(EngineDeadError, match="shut down"):
            client.get_output()


def test_an_executor_that_does_not_let_go_cannot_hold_anybody_up(tmp_path):
    with running(executor="stuck-at-end", component="STUCK_AT_END") as client:
        pid = client.engine_core_pid
    assert is_gone(pid)


FORGETFUL = """
from tests.client.starting import load
from enginecore.client import make_client
client = make_client(load())
print(client.engine_core_pid, flush=True)
{rest}
"""


@pytest.mark.parametrize(
    "rest", ["", "raise SystemExit(3)", "import sys; sys.modules['keep'] = client", "import os; os._exit(1)"]
)
def test_a_front_end_that_ends_takes_its_core_along(rest):
    front_end = python(FORGETFUL.format(rest=rest))
    out, _ = front_end.communicate(timeout=DEADLINE)
    wait_until(lambda: is_gone(int(out)), "the engine core is gone")


BUSY = """
from tests.client.starting import load
from enginecore.client import make_client
from tests.client.test_end import endless, SLOW, ROOM
client = make_client(load(**SLOW, **ROOM, shutdown_timeout=600.0))
client.add_request(endless("r"))
client.get_output()
print(client.engine_core_pid, flush=True)
while True:
    client.get_output()
"""


@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM", "ctrl-c"])
def test_a_front_end_that_is_killed_takes_its_core_along_whatever_it_does(how):
    front_end = python(BUSY, start_new_session=True)
    pid = int(front_end.stdout.readline())
    if how == "ctrl-c":
        os.killpg(front_end.pid, signal.SIGINT)
    else:
        front_end.send_signal(getattr(signal, how))
    front_end.communicate(timeout=DEADLINE)
    wait_until(lambda: is_gone(pid), "the engine core is gone")


def test_nothing_is_left_in_the_process_after_many_engines():
    def counts():
        return threading.active_count(), len(os.listdir("/proc/self/fd"))

    with running():
        pass
    before = counts()
    for _ in range(5):
        with running() as client:
            client.add_request(request("r", max_tokens=1))
            client.get_output()
    assert counts() == before
