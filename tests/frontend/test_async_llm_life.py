"""AsyncLLM on a scripted engine core: streams that are left, event loops that end, engine cores that die."""

import asyncio
import gc
import random
import threading
from contextlib import aclosing, suppress
from typing import Any

import pytest

from enginecore import SamplingParams
from enginecore.errors import EngineCoreError, EngineDeadError, InvalidRequestError
from enginecore.frontend.output_handler import TURN
from enginecore.frontend.outputs import RequestOutputKind
from enginecore.messages import EngineCoreOutputs
from tests.frontend.async_llms import kept, make, pieces, read

DELTA, FINAL_ONLY = RequestOutputKind.DELTA, RequestOutputKind.FINAL_ONLY
LONG = SamplingParams(max_tokens=100)
READER = "enginecore-outputs"
MORE_THAN_ONE_TURN = TURN + 100


async def until(condition):
    while not condition():
        await asyncio.sleep(0)


def readers():
    return [task for task in asyncio.all_tasks() if task.get_name() == READER]


# -- streams that are left -------------------------------------------------------------------------------------------


def test_a_generator_that_is_never_started_has_submitted_nothing():
    llm, client = make()

    async def main():
        llm.generate("Hi", LONG)
        await llm.generate("Hi", LONG).aclose()

    asyncio.run(main())
    assert client.core.requests == []
    assert kept(llm) == 0


async def by_break(llm):
    async for _ in llm.generate("Hi", LONG):
        break


async def by_aclose(llm):
    stream = llm.generate("Hi", LONG)
    await anext(stream)
    await stream.aclose()


async def by_exception(llm):
    with suppress(ZeroDivisionError):
        async with aclosing(llm.generate("Hi", LONG)) as stream:
            async for _ in stream:
                raise ZeroDivisionError


async def by_dropping_it(llm):
    stream = llm.generate("Hi", LONG)
    await anext(stream)
    del stream
    gc.collect()


async def by_cancelling_a_consumer_between_items(llm):
    async def consume():
        async for _ in llm.generate("Hi", LONG):
            got_one.set()
            await asyncio.Event().wait()

    got_one = asyncio.Event()
    task = asyncio.create_task(consume())
    await got_one.wait()
    task.cancel()
    await asyncio.wait({task})


async def by_cancelling_a_consumer_that_waits(llm):
    task = asyncio.create_task(anext(llm.generate("Hi", LONG, output_kind=FINAL_ONLY)))
    await until(lambda: llm._client.core.num_steps == 5)
    task.cancel()
    await asyncio.wait({task})


async def by_a_timeout_before_the_first_output(llm):
    llm._client.paused = True
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await read(llm, max_tokens=100)
    llm._client.resume()


@pytest.mark.parametrize(
    "leave",
    [
        by_break,
        by_aclose,
        by_exception,
        by_dropping_it,
        by_cancelling_a_consumer_between_items,
        by_cancelling_a_consumer_that_waits,
        by_a_timeout_before_the_first_output,
    ],
)
def test_however_a_stream_is_left_the_engine_core_is_told_once_and_nothing_stays(leave):
    llm, client = make()

    async def main():
        await leave(llm)
        await until(lambda: client.core.aborted)
        assert client.core.live == {}
        await read(llm, max_tokens=1)

    asyncio.run(main())
    assert client.core.aborted == [client.core.requests[0].request_id]
    assert kept(llm) == 0


def test_a_thousand_cancellations_anywhere_leave_nothing():
    llm, client = make()
    draw = random.Random(1)
    num_cancelled = 0

    async def one(number):
        nonlocal num_cancelled
        prompt = draw.choice(["Hi", "long" * 1_000, [1, 2]])
        task = asyncio.create_task(read(llm, prompt, f"r{number}", max_tokens=5))
        for _ in range(draw.choice([0, 1, 2, 3, 4, 6, 8, 40])):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        num_cancelled += task.cancelled()

    async def main():
        for start in range(0, 1_000, 20):
            await asyncio.gather(*(one(number) for number in range(start, start + 20)))

    asyncio.run(main())
    assert num_cancelled > 500
    assert len(client.core.aborted) > 100  # enough had been submitted
    assert len(set(client.core.aborted)) == len(client.core.aborted)
    assert client.core.live == {}
    assert kept(llm) == 0


# -- event loops -----------------------------------------------------------------------------------------------------


def test_event_loops_in_turn():
    llm, client = make()
    for _ in range(3):
        assert pieces(asyncio.run(read(llm, max_tokens=3))) == ["a", "b", "c"]
        assert asyncio.run(llm.get_stats()) is True
    assert client.core.aborted == []
    assert kept(llm) == 0


def test_streams_of_an_event_loop_that_was_cut_off_are_aborted_by_the_next_one():
    llm, client = make()
    streams = [llm.generate("Hi", LONG, f"old-{n}") for n in range(2)]
    loop = asyncio.new_event_loop()
    loop.run_until_complete(anext(streams[0]))
    client.paused = True
    waiting = loop.create_task(anext(streams[1]))
    loop.run_until_complete(until(lambda: len(client.core.requests) == 2 and client.is_waiting))
    loop.close()
    client.paused = False
    assert pieces(asyncio.run(read(llm, request_id="old-0", max_tokens=2))) == ["a", "b"]
    del waiting
    gc.collect()
    assert pieces(asyncio.run(read(llm, max_tokens=2))) == ["a", "b"]
    assert client.core.aborted == ["old-0-3-0", "old-1-3-1"]
    assert kept(llm) == 0


def test_a_stream_that_goes_on_in_another_event_loop_ends_there():
    llm, client = make()
    stream = llm.generate("Hi", LONG, output_kind=DELTA)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(anext(stream))
    loop.close()

    async def rest():
        async with asyncio.timeout(10):
            return [output async for output in stream]

    assert asyncio.run(rest())[-1].outputs[0].finish_reason == "abort"
    assert client.core.aborted == ["generate-0-3-0"]


def test_an_event_loop_may_pause_while_another_one_runs():
    llm, _ = make()
    first = asyncio.new_event_loop()
    stream = llm.generate("Hi", LONG, output_kind=DELTA)
    first.run_until_complete(anext(stream))
    assert pieces(asyncio.run(read(llm, max_tokens=2))) == ["a", "b"]

    async def rest():
        return [output async for output in stream], await read(llm, max_tokens=2)

    old, new = first.run_until_complete(rest())
    assert [output.outputs[0].finish_reason for output in old][-1] == "abort"
    assert pieces(new) == ["a", "b"]
    first.run_until_complete(first.shutdown_asyncgens())
    for task in asyncio.all_tasks(first):
        task.cancel()
    first.run_until_complete(asyncio.sleep(0))
    first.close()
    assert kept(llm) == 0


def test_a_second_event_loop_at_the_same_time_is_refused():
    llm, client = make()
    errors = []

    def other_thread():
        for use in (lambda: asyncio.run(read(llm)), lambda: asyncio.run(llm.get_stats()), lambda: llm.abort("a")):
            try:
                use()
            except EngineCoreError as error:
                errors.append(str(error))

    async def main():
        stream = llm.generate("Hi", LONG, "a", output_kind=DELTA)
        await anext(stream)
        (reader,) = readers()
        await asyncio.to_thread(other_thread)
        assert not reader.cancelling()
        rest = [output async for output in stream]
        return rest[-1]

    last = asyncio.run(main())
    assert last.outputs[0].finish_reason == "length"
    assert len(errors) == 3
    assert all("event loop that runs in another thread" in error for error in errors)
    assert len(client.core.requests) == 1


def test_streams_and_utilities_survive_the_end_of_the_task_that_reads():
    llm, client = make()

    async def main():
        stream = llm.generate("Hi", LONG, output_kind=DELTA)
        outputs = [await anext(stream)]
        waiting = asyncio.create_task(read(llm, max_tokens=50))
        client.on_call = lambda *words: list(words)
        for _ in range(5):
            call = asyncio.create_task(llm.get_stats())
            await asyncio.sleep(0)
            for reader in readers():
                reader.cancel()
            assert await call == ["get_stats"]
            outputs.append(await anext(stream))
        for reader in readers():
            reader.cancel()
        outputs += [output async for output in stream]
        return outputs, await waiting

    outputs, waited = asyncio.run(main())
    assert "".join(pieces(outputs)) == client.text[:100]
    assert "".join(pieces(waited)) == client.text[:50]


def test_a_reader_that_is_cancelled_between_two_slices_of_a_step_loses_nothing():
    llm, client = make()
    cancelled: list[asyncio.Task[None]] = []

    async def consume():
        text = ""
        async for output in llm.generate([1], SamplingParams(max_tokens=3), output_kind=DELTA):
            text += output.outputs[0].text
            if not cancelled:
                assert client.core.num_steps == 1
                cancelled.extend(readers())
                cancelled[0].cancel()
        return text

    async def main():
        client.paused = True
        tasks = [asyncio.create_task(consume()) for _ in range(MORE_THAN_ONE_TURN)]
        await until(lambda: len(client.core.requests) == len(tasks))
        client.resume()
        return await asyncio.gather(*tasks)

    assert asyncio.run(main()) == ["abc"] * MORE_THAN_ONE_TURN
    assert cancelled[0].cancelled()


def test_one_task_reads():
    llm, client = make()

    async def main():
        tasks = [asyncio.create_task(read(llm, max_tokens=50)) for _ in range(5)]
        await until(lambda: client.core.num_steps > 5)
        assert len(readers()) == 1
        await asyncio.gather(*tasks)

    asyncio.run(main())


# -- engine cores that die -------------------------------------------------------------------------------------------


def test_when_the_engine_core_dies_everybody_is_told_why_then_and_later():
    llm, client = make()
    cause = RuntimeError("out of memory")
    client.answers = False

    async def main():
        reading = [read(llm, max_tokens=100, output_kind=kind) for kind in (DELTA, FINAL_ONLY)]
        then = asyncio.gather(*reading, llm.get_stats(), llm.check_health(), return_exceptions=True)
        await until(lambda: client.core.num_steps > 5)
        assert llm.is_running
        client.core.on_output = lambda: client.die(cause)
        errors: list[Any] = list(await then)
        assert (llm.errored, llm.is_running) == (True, False)
        later = asyncio.gather(read(llm), read(llm), llm.get_stats(), llm.check_health(), return_exceptions=True)
        return errors, await later

    then, later = asyncio.run(main())
    errors = [*then, *later]
    assert [(type(error), str(error)) for error in errors] == [(EngineDeadError, "out of memory")] * 8
    assert len(set(map(id, errors))) == len(errors)
    assert then[0].__cause__ is then[1].__cause__ is cause
    assert str(llm.dead_error) == "out of memory"
    with pytest.raises(EngineDeadError, match="out of memory"):
        asyncio.run(read(llm))
    assert kept(llm) == 0


def test_what_was_given_before_the_death_can_still_be_read():
    llm, client = make()

    async def main():
        stream = llm.generate("Hi", LONG, output_kind=DELTA)
        texts = [(await anext(stream)).outputs[0].text]
        await until(lambda: client.core.num_steps == 8)
        client.die(RuntimeError("gone"))
        client.core.live.clear()
        await until(lambda: llm.errored and not readers())
        texts.append((await anext(stream)).outputs[0].text)
        with pytest.raises(EngineDeadError, match="gone"):
            await anext(stream)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        return texts

    assert "".join(asyncio.run(main())) == client.text[:8]
    assert kept(llm) == 0


def test_a_fault_of_the_front_end_is_loud_too():
    llm, client = make()
    fault = ZeroDivisionError("1/0")

    def fail():
        if client.core.num_steps == 5:
            raise fault

    client.core.on_output = fail

    async def main():
        with pytest.raises(EngineDeadError, match="cannot be processed: ZeroDivisionError: 1/0") as error:
            await read(llm, max_tokens=50)
        assert error.value.__cause__ is fault
        with pytest.raises(EngineDeadError, match="1/0"):
            await read(llm)

    asyncio.run(main())
    assert llm.errored
    assert kept(llm) == 0


def test_requests_that_the_engine_core_has_lost_end_with_an_error():
    llm, client = make(components={"scheduler": "losing"})

    async def main():
        client.paused = True
        tasks = [asyncio.create_task(read(llm, max_tokens=5)) for _ in range(2)]
        await until(lambda: len(client.core.requests) == 2)
        client.core.live.popitem()
        client.resume()
        await until(lambda: not client.core.live)
        client.due.append(EngineCoreOutputs(idle=True))
        client.look()
        return await asyncio.gather(*tasks)

    whole, lost = asyncio.run(main())
    assert whole[-1].outputs[0].finish_reason == "length"
    assert (lost[-1].outputs[0].finish_reason, len(lost)) == ("error", 1)
    assert "scheduler 'losing' has lost it" in lost[-1].error
    assert kept(llm) == 0


def test_a_request_that_is_added_after_the_idle_note_is_not_lost():
    llm, client = make()

    async def main():
        client.paused = True
        tasks = [asyncio.create_task(read(llm, [1], max_tokens=1), name="early") for _ in range(MORE_THAN_ONE_TURN)]
        late = asyncio.create_task(one_after_another())
        await until(lambda: len(client.core.requests) == MORE_THAN_ONE_TURN + 1)
        step = client.core.get_output()  # more than is processed at once
        client.due.append(EngineCoreOutputs(outputs=step.outputs[-1:] + step.outputs[:-1], idle=True))
        client.resume()
        await asyncio.gather(*tasks)
        return await late

    async def one_after_another():
        await read(llm, [1], max_tokens=1)
        # the other outputs of the step that ended it wait for their turn
        assert sum(task.get_name() == "early" for task in asyncio.all_tasks()) > 0
        return await read(llm, [1], max_tokens=3)

    assert pieces(asyncio.run(main())) == ["a", "b", "c"]
    assert kept(llm) == 0


# -- shutdown --------------------------------------------------------------------------------------------------------


def test_leaving_async_with_ends_open_streams_with_reason_abort():
    llm, client = make()
    client.keeps_last_outputs = False

    async def main():
        async with llm:
            tasks = [asyncio.create_task(read(llm, max_tokens=100)) for _ in range(3)]
            slow = llm.generate("Hi", LONG, output_kind=DELTA)
            await anext(slow)
            await until(lambda: client.core.num_steps > 5)
        ends = [outputs[-1] for outputs in await asyncio.gather(*tasks)]
        ends += [output async for output in slow][-1:]
        with pytest.raises(EngineDeadError, match="shut down"):
            await read(llm)
        return ends

    assert [output.outputs[0].finish_reason for output in asyncio.run(main())] == ["abort"] * 4
    assert client.core.num_shutdowns == 1
    assert (llm.errored, llm.is_running) == (True, False)
    assert kept(llm) == 0


@pytest.mark.parametrize("delivers", [True, False])
def test_shutdown_ends_open_streams_by_their_last_outputs_or_by_an_error(delivers):
    llm, client = make()
    client.keeps_last_outputs = delivers

    async def main():
        tasks = [asyncio.create_task(read(llm, max_tokens=100)) for _ in range(3)]
        idle = llm.generate("Hi", LONG, output_kind=DELTA)
        await anext(idle)
        await until(lambda: client.core.num_steps > 5)
        llm.shutdown()
        llm.shutdown()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        return [*results, *await asyncio.gather(anext(idle), return_exceptions=True)]

    *results, idle = asyncio.run(main())
    if delivers:
        assert [outputs[-1].outputs[0].finish_reason for outputs in results] == ["abort"] * 3
        assert idle.outputs[0].finish_reason == "abort"
    else:
        assert [type(error) for error in results] == [EngineDeadError] * 3
    assert kept(llm) == 0


def test_a_client_that_forgets_its_reader_at_shutdown_leaves_no_stream_waiting():
    llm, client = make()

    async def main():
        client.paused = True
        task = asyncio.create_task(read(llm))
        await until(lambda: client.core.requests and client.is_waiting)
        client.look = lambda: None
        llm.shutdown()
        return await asyncio.gather(task, return_exceptions=True)

    (result,) = asyncio.run(main())
    assert isinstance(result, list)
    assert result[-1].outputs[0].finish_reason == "abort"


def test_shutdown_without_an_event_loop():
    llm, _ = make()
    asyncio.run(read(llm, max_tokens=2))
    llm.shutdown()
    assert llm.errored
    with pytest.raises(EngineDeadError, match="shut down"):
        asyncio.run(read(llm))


def test_shutdown_in_another_thread_while_streams_are_read():
    llm, client = make()

    async def main():
        client.paused = True
        task = asyncio.create_task(read(llm))
        await until(lambda: client.core.requests and client.is_waiting)
        client.look = lambda: None
        thread = threading.Thread(target=llm.shutdown)
        thread.start()
        result = await task
        thread.join()
        return result

    assert asyncio.run(main())[-1].outputs[0].finish_reason == "abort"


def test_a_cancelled_exit_still_shuts_down():
    llm, client = make()

    async def never():
        await asyncio.Event().wait()

    async def main():
        client.drain = never
        async with llm:
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_soon(task.cancel)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert client.core.num_shutdowns == 1


def test_new_requests_are_refused_by_the_engine_core_that_shuts_down():
    llm, client = make()

    def refuse(request):
        raise InvalidRequestError("the engine core shuts down")

    client.core.add_request = refuse
    with pytest.raises(InvalidRequestError, match="shuts down"):
        asyncio.run(read(llm))
    assert kept(llm) == 0
