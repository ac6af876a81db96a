"""Both client halves on memory channels: against a loop in the same process, and against a script."""

import asyncio
import os
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

from enginecore.client.answers import dead_error
from enginecore.client.async_process_client import AsyncProcessClient
from enginecore.client.connection import Connection
from enginecore.client.process_client import ProcessClient
from enginecore.errors import EngineCoreError, EngineDeadError, InvalidRequestError, RemoteError, UtilityError
from enginecore.messages import EngineCoreOutput, EngineCoreOutputs, FinishReason, LoopStats, SchedulerStats
from enginecore.wire import (
    Bye,
    Dead,
    Hello,
    Idle,
    Rejected,
    Shutdown,
    StepOutputs,
    UtilityFailure,
    UtilityReply,
    Welcome,
)
from tests.core.engines import request
from tests.loop.harness import TIMEOUT, Loop
from tests.loop.memory_channel import MemoryChannel
from tests.loop.scripted_core import INFO


class FakeProcess:
    """The engine core's process, as a client sees it; it ends when it is told to."""

    owner_key = "secret"
    shutdown_time = TIMEOUT
    pid = 1

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._signal = os.eventfd(0, os.EFD_NONBLOCK)
        self.calls: list[str] = []

    def end(self) -> None:
        self._ended.set()
        os.eventfd_write(self._signal, 1)

    def fileno(self) -> int:
        return self._signal

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    def failure(self) -> EngineDeadError:
        return dead_error("the process was killed by SIGKILL", "")

    def wait(self, timeout: float = TIMEOUT) -> bool:
        self.calls.append("wait")
        return self._ended.wait(timeout)

    def terminate(self) -> None:
        self.calls.append("terminate")
        self.end()

    def kill(self) -> None:
        self.calls.append("kill")


WELCOME = Welcome(3, INFO)


def outputs(*tokens: int, last: bool = False) -> StepOutputs:
    reason = FinishReason.LENGTH if last else None
    return StepOutputs(EngineCoreOutputs(outputs=[EngineCoreOutput("r", list(tokens), reason)]))


def connection(channel: MemoryChannel, process: Any = None) -> Connection:
    return Connection(channel, {}, TIMEOUT, process)


@pytest.fixture
def channel() -> Iterator[MemoryChannel]:
    """One on which the engine core has said welcome."""
    channel = MemoryChannel()
    channel.say(WELCOME)
    yield channel
    channel.close()


@pytest.fixture
def process() -> FakeProcess:
    return FakeProcess()


def tokens_of(client: ProcessClient) -> list[int]:
    """Up to the last output."""
    tokens: list[int] = []
    while True:
        for output in client.get_output().outputs:
            tokens += output.new_token_ids
            if output.finish_reason is not None:
                return tokens


# -- hello -----------------------------------------------------------------------------------------------------------


def test_hello_is_answered_by_what_is_in_force(channel: MemoryChannel, process: FakeProcess) -> None:
    client = ProcessClient(connection(channel, process))
    assert (client.client_index, client.info) == (3, INFO)
    (hello,) = channel.sent
    assert isinstance(hello, Hello)
    assert hello.key == "secret"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Rejected("the engine core does not talk to this front end: it is another one"), "it is another one"),
        (Dead("the engine core has failed: X"), "has failed: X"),
        (UtilityReply(1), "answered hello by UtilityReply"),
    ],
)
def test_another_answer_to_hello_is_an_error(answer: Any, error: str) -> None:
    channel = MemoryChannel()
    channel.say(answer)
    with pytest.raises(EngineCoreError, match=error):
        connection(channel)


def test_no_answer_to_hello_is_an_error_in_time() -> None:
    with pytest.raises(EngineCoreError, match=r"did not answer within 0\.01 seconds"):
        Connection(MemoryChannel(), {}, 0.01)


def test_an_engine_core_that_ends_instead_of_answering_hello_says_why(process: FakeProcess) -> None:
    process.end()
    with pytest.raises(EngineDeadError, match="killed by SIGKILL"):
        connection(MemoryChannel(), process)


# -- outputs ---------------------------------------------------------------------------------------------------------


def test_a_synchronous_client_on_a_loop() -> None:
    with Loop() as loop:
        client = ProcessClient(connection(loop.server.connect(b"a")))
        assert client.get_output() == EngineCoreOutputs(idle=True)
        for _ in range(3):
            client.add_request(request("r"))
            assert len(tokens_of(client)) == 4
        assert isinstance(client.call_utility("get_stats"), SchedulerStats)
        assert isinstance(client.call_utility("get_loop_stats"), LoopStats)
        client.add_request(request("gone", max_tokens=400))
        client.abort_requests(["gone"])
        while not client.get_output().idle:
            pass
        client.shutdown()


def test_an_asyncio_client_on_a_loop() -> None:
    async def use(client: AsyncProcessClient, name: str) -> None:
        client.add_request(request(name))
        tokens: list[int] = []
        while len(tokens) < 4:
            for output in (await client.get_output()).outputs:
                tokens += output.new_token_ids
        reader = asyncio.ensure_future(read_on(client))
        assert isinstance(await client.call_utility("get_stats"), SchedulerStats)
        reader.cancel()

    async def read_on(client: AsyncProcessClient) -> None:
        while True:
            await client.get_output()

    with Loop() as loop:
        client = AsyncProcessClient(connection(loop.server.connect(b"a")))
        asyncio.run(use(client, "first"))
        asyncio.run(use(client, "second"))  # in another event loop
        client.shutdown()


def test_a_note_that_all_is_done_says_nothing_of_what_is_sent_later(channel: MemoryChannel) -> None:
    client = ProcessClient(connection(channel))
    client.add_request(request("first"))
    channel.say(outputs(1, last=True), Idle(1), UtilityReply(1, True))
    assert client.call_utility("is_alive") is True
    client.add_request(request("second"))
    assert client.get_output() == outputs(1, last=True).outputs
    channel.say(outputs(2))
    assert client.get_output() == outputs(2).outputs, "and no idle note that was meant for the first one"
    channel.say(Idle(1), outputs(3, last=True), Idle(2))
    assert client.get_output() == outputs(3, last=True).outputs
    for _ in range(3):
        assert client.get_output() == EngineCoreOutputs(idle=True)


def test_outputs_that_come_before_a_reply_are_kept(channel: MemoryChannel) -> None:
    client = ProcessClient(connection(channel))
    client.add_request(request("r"))
    channel.say(outputs(1), outputs(2), UtilityReply(7, "of nobody"), UtilityReply(1, True), outputs(3))
    assert client.call_utility("is_alive") is True
    assert [client.get_output() for _ in range(3)] == [outputs(token).outputs for token in (1, 2, 3)]


# -- calls -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "error", "message"),
    [
        (UtilityReply(1, failure=UtilityFailure.INVALID, error="no such"), InvalidRequestError, "no such"),
        (
            UtilityReply(1, failure=UtilityFailure.FAILED, error="broke", traceback="Traceback: in x"),
            UtilityError,
            "broke",
        ),
        (UtilityReply(1, failure=UtilityFailure.DEAD, error="dead"), EngineDeadError, "dead"),
    ],
)
def test_a_call_that_fails_raises_what_kind_of_failure_it_was(
    reply: UtilityReply, error: type[EngineCoreError], message: str, channel: MemoryChannel
) -> None:
    client = ProcessClient(connection(channel))
    channel.say(reply)
    with pytest.raises(error, match=message) as raised:
        client.call_utility("is_alive")
    if isinstance(raised.value, UtilityError):
        assert raised.value.traceback == "Traceback: in x"


def test_an_argument_that_cannot_be_sent_is_refused_here(channel: MemoryChannel) -> None:
    client = ProcessClient(connection(channel))
    for argument in (object(), np.array([object()])):
        with pytest.raises(InvalidRequestError, match="an argument of 'collective_rpc' cannot be sent"):
            client.call_utility("collective_rpc", "x", argument)
    channel.say(UtilityReply(3, True))
    assert client.call_utility("is_alive") is True


def test_a_request_that_cannot_be_sent_is_refused_here_and_not_counted(channel: MemoryChannel) -> None:
    client = ProcessClient(connection(channel))
    with pytest.raises(InvalidRequestError, match="the request cannot be sent"):
        client.add_request(request("\ud800"))
    assert client.get_output().idle


def test_replies_reach_whoever_asked_whatever_became_of_the_others(channel: MemoryChannel) -> None:
    async def call() -> None:
        client = AsyncProcessClient(connection(channel))
        reader = asyncio.ensure_future(client.get_output())
        calls = [asyncio.ensure_future(client.call_utility("collective_rpc", "x")) for _ in range(3)]
        await asyncio.sleep(0)
        calls[1].cancel()
        await asyncio.sleep(0)
        channel.say(
            UtilityReply(3, ["third"]),
            UtilityReply(2, ["second"]),
            UtilityReply(1, ["first"]),
            UtilityReply(99, "of nobody"),
        )
        assert await calls[0] == ["first"]
        assert await calls[2] == ["third"]
        assert client._calls == {}
        reader.cancel()

    asyncio.run(call())


def test_calls_of_an_event_loop_that_is_closed_are_nobodys(channel: MemoryChannel) -> None:
    client = AsyncProcessClient(connection(channel))
    loop = asyncio.new_event_loop()
    abandoned = loop.create_task(client.call_utility("is_alive"))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()

    async def use() -> None:
        channel.say(UtilityReply(1, True), outputs(1))
        assert await client.get_output() == outputs(1).outputs
        channel.say(Dead("the end"))
        with pytest.raises(EngineDeadError, match="the end"):
            await client.get_output()

    asyncio.run(use())
    abandoned._log_destroy_pending = False  # type: ignore[attr-defined]


# -- the end ---------------------------------------------------------------------------------------------------------


def test_the_last_word_is_raised_after_everything_else_and_for_ever(channel: MemoryChannel) -> None:
    client = ProcessClient(connection(channel))
    client.add_request(request("r"))
    channel.say(outputs(1), Dead("the engine core has failed: X", "Traceback: there"))
    assert client.get_output() == outputs(1).outputs
    errors = []
    for call in (client.get_output, lambda: client.call_utility("x"), lambda: client.add_request(request("r"))) * 2:
        with pytest.raises(EngineDeadError, match="has failed: X") as raised:
            call()
        assert isinstance(raised.value.__cause__, RemoteError)
        assert "Traceback: there" in str(raised.value.__cause__)
        errors.append(raised.value)
    assert len({id(error) for error in errors}) == len(errors), "one object would collect tracebacks"
    client.abort_requests(["r"])
    client.shutdown()


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([b"\xc1"], "sent what cannot be read"),
        ([b"\x91\x63"], "sent what cannot be read"),
        (None, "the connection to the engine core is lost: the other end is gone"),
    ],
)
def test_junk_and_a_lost_connection_are_the_end(
    frames: list[bytes] | None, reason: str, channel: MemoryChannel
) -> None:
    client = ProcessClient(connection(channel))
    client.add_request(request("r"))
    channel.say(outputs(1))
    channel.put(frames)
    assert client.get_output() == outputs(1).outputs
    for _ in range(2):
        with pytest.raises(EngineDeadError, match=reason):
            client.get_output()


def test_a_welcome_out_of_turn_is_the_end(channel: MemoryChannel) -> None:
    client = ProcessClient(connection(channel))
    client.add_request(request("r"))
    channel.say(WELCOME)
    with pytest.raises(EngineDeadError, match="sent Welcome out of turn"):
        client.get_output()


def test_what_was_sent_before_the_process_ended_is_heard_first(channel: MemoryChannel, process: FakeProcess) -> None:
    client = ProcessClient(connection(channel, process))
    client.add_request(request("r"))
    channel.say(outputs(1), outputs(2))
    process.end()
    assert [client.get_output() for _ in range(2)] == [outputs(1).outputs, outputs(2).outputs]
    for _ in range(2):
        with pytest.raises(EngineDeadError, match="killed by SIGKILL"):
            client.get_output()


def test_the_end_of_the_process_wakes_whoever_waits(channel: MemoryChannel, process: FakeProcess) -> None:
    client = ProcessClient(connection(channel, process))
    client.add_request(request("r"))
    timer = threading.Timer(0.01, process.end)
    timer.start()
    with pytest.raises(EngineDeadError, match="killed by SIGKILL"):
        client.get_output()
    timer.join()


def test_the_end_reaches_everybody_who_waits_on_an_event_loop(channel: MemoryChannel, process: FakeProcess) -> None:
    async def use() -> None:
        client = AsyncProcessClient(connection(channel, process))
        reader = asyncio.ensure_future(client.get_output())
        calls = [asyncio.ensure_future(client.call_utility("is_alive")) for _ in range(3)]
        await asyncio.sleep(0)
        process.end()
        results = await asyncio.gather(reader, *calls, return_exceptions=True)
        assert all(isinstance(result, EngineDeadError) for result in results)
        assert len({id(result) for result in results}) == 4
        assert client.failure is not None
        with pytest.raises(EngineDeadError):
            await client.call_utility("is_alive")

    asyncio.run(use())


def test_get_output_may_be_cancelled_and_nothing_is_lost(channel: MemoryChannel) -> None:
    async def use() -> None:
        client = AsyncProcessClient(connection(channel))
        heard: list[EngineCoreOutputs] = []
        for token in range(20):
            reader = asyncio.ensure_future(client.get_output())
            await asyncio.sleep(0)
            if token % 2:
                channel.say(outputs(token))
            reader.cancel()
            (got,) = await asyncio.gather(reader, return_exceptions=True)
            heard += [got] if isinstance(got, EngineCoreOutputs) else []
        while len(heard) < 10:
            heard.append(await client.get_output())
        assert [got.outputs[0].new_token_ids for got in heard] == [[token] for token in range(1, 20, 2)]

    asyncio.run(use())


# -- shutdown --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("half", [ProcessClient, AsyncProcessClient])
def test_a_guest_says_bye_and_leaves_the_engine_core_alone(half: Any, channel: MemoryChannel) -> None:
    client = half(connection(channel))
    for _ in range(3):
        client.shutdown()
    assert [type(message) for message in channel.sent] == [Hello, Bye]
    assert channel.closed


def end_after_shutdown(channel: MemoryChannel, process: FakeProcess) -> threading.Thread:
    """The engine core: told to shut down, it says a last output, and ends."""

    def run() -> None:
        while not any(isinstance(message, Shutdown) for message in channel.sent):
            pass
        channel.say(outputs(1), UtilityReply(5, "of nobody"), outputs(2, last=True), Dead("it was shut down"))
        process.end()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_outputs_of_a_shutdown_are_still_given(channel: MemoryChannel, process: FakeProcess) -> None:
    client = ProcessClient(connection(channel, process))
    client.add_request(request("r"))
    channel.say(outputs(0))
    thread = end_after_shutdown(channel, process)
    client.shutdown()
    thread.join()
    assert tokens_of(client) == [0, 1, 2]
    for _ in range(2):
        with pytest.raises(EngineDeadError, match="it was shut down"):
            client.get_output()
    client.shutdown()
    assert process.calls == ["wait", "terminate", "wait", "kill"]


def test_outputs_of_a_shutdown_are_still_given_on_an_event_loop(channel: MemoryChannel, process: FakeProcess) -> None:
    async def use() -> None:
        client = AsyncProcessClient(connection(channel, process))
        client.add_request(request("r"))
        channel.say(outputs(0))
        thread = end_after_shutdown(channel, process)
        client.shutdown()
        thread.join()
        heard = [(await client.get_output()).outputs[0].new_token_ids for _ in range(3)]
        assert heard == [[0], [1], [2]]
        for _ in range(2):
            with pytest.raises(EngineDeadError, match="it was shut down"):
                await client.get_output()

    asyncio.run(use())


@pytest.mark.parametrize("half", [ProcessClient, AsyncProcessClient])
def test_an_engine_core_that_does_not_end_is_not_waited_for(half: Any, channel: MemoryChannel) -> None:
    process = FakeProcess()
    process.shutdown_time = 0.02
    client = half(connection(channel, process))
    channel.say(outputs(1))
    client.shutdown()
    assert process.calls == ["terminate", "wait", "kill"]
    assert channel.closed


@pytest.mark.parametrize("half", [ProcessClient, AsyncProcessClient])
def test_a_client_that_is_forgotten_lets_go_of_everything(
    half: Any, channel: MemoryChannel, process: FakeProcess
) -> None:
    half(connection(channel, process))
    assert process.calls == ["terminate", "wait", "kill"]
    assert channel.closed


def test_two_threads_may_shut_down_at_a_time(channel: MemoryChannel, process: FakeProcess) -> None:
    client = ProcessClient(connection(channel, process))
    ending = end_after_shutdown(channel, process)
    threads = [threading.Thread(target=client.shutdown) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
        assert not thread.is_alive()
    ending.join()
    assert process.calls.count("kill") == 1


def test_info_arrives_whole() -> None:
    with Loop() as loop:
        client = ProcessClient(connection(loop.server.connect(b"a")))
        assert msgspec.structs.asdict(client.info) == msgspec.structs.asdict(loop.core.info)
        client.shutdown()
