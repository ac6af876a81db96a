"""Checks: several front ends on one engine core, asyncio, and an engine core that is killed."""

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress

from enginecore.client import attach_async_client, attach_client, make_client
from enginecore.errors import EngineDeadError
from enginecore.interfaces import AsyncEngineCoreClient
from enginecore.messages import EngineCoreRequest
from enginecore_conformance.checks import Violation, check
from enginecore_conformance.oracle.model import OracleModel
from enginecore_conformance.transcript import Transcript
from enginecore_conformance.transports.client_bench import ClientBench, Talk, expect_error, request, requests


@check("transport", "channels")
def front_ends_share_an_engine_core(bench: ClientBench) -> None:
    """Each of several front ends gets the outputs of its own requests, at the same time; the
    requests of one that leaves are ended, and those of others are not.
    """
    loaded = bench.load()
    first = bench.talk(make_client(loaded))
    address = first.client.address  # type: ignore[attr-defined]
    others = [bench.talk(attach_client(loaded, address)) for _ in range(2)]
    talks = [first, *others]
    if len({talk.client.client_index for talk in talks}) != 3:
        raise Violation(f"client indices {[talk.client.client_index for talk in talks]}", "three different ones")
    for number, talk in enumerate(talks):
        talk.add_requests(*requests(8, prefix=f"of{number}-", seed=number))
    others[0].client.add_request(request("never-ending", max_tokens=500))
    others[0].client.shutdown()
    for talk in (first, others[1]):
        talk.run()
    bench.until(lambda: not first.rpc("get_request_ids"))
    first.expect_rest()


@check("transport", "channels")
def an_event_loop_gets_the_same(bench: ClientBench) -> None:
    """An asyncio front end gets the same tokens, while a synchronous one is served; in a second
    event loop too.
    """
    loaded = bench.load()
    talk = bench.talk(make_client(loaded))
    client = attach_async_client(loaded, talk.client.address)  # type: ignore[attr-defined]
    try:
        for number in range(2):
            mine = requests(8, prefix=f"sync{number}-", seed=number)
            talk.add_requests(*mine)
            asyncio.run(_run(client, requests(8, prefix=f"async{number}-", seed=number + 5)))
            talk.run()
    finally:
        client.shutdown()
    talk.expect_rest()


async def _run(client: AsyncEngineCoreClient, asked: Sequence[EngineCoreRequest]) -> None:
    transcript = Transcript()

    async def read() -> None:
        while True:
            transcript.record((await client.get_output()).outputs)

    for one in asked:
        client.add_request(one)
        transcript.begin(one)
    reading = asyncio.create_task(read())  # a control call needs a task that reads
    await client.call_utility("get_stats")
    reading.cancel()
    with suppress(asyncio.CancelledError):
        await reading
    while transcript.open_ids:
        transcript.record((await client.get_output()).outputs)
    transcript.check(OracleModel.of_engine(client.info))


@check("transport", "channels")
def an_engine_core_that_is_killed_is_mourned(bench: ClientBench) -> None:
    """When the engine core's process is killed by SIGKILL, a call that waits gets EngineDeadError
    soon, later calls at once, every front end alike.
    """
    loaded = bench.load(oracle={"step_time": 0.02})
    first = bench.talk(make_client(loaded))
    second = bench.talk(attach_client(loaded, first.client.address))  # type: ignore[attr-defined]
    for number, talk in enumerate((first, second)):
        talk.add_requests(request(f"r{number}", max_tokens=450))
        talk.take_outputs()
    waiting = [bench.start_call(_take_all, talk) for talk in (first, second)]
    os.kill(first.client.engine_core_pid, signal.SIGKILL)  # type: ignore[attr-defined]
    for call, talk in zip(waiting, (first, second), strict=True):
        expect_error(
            EngineDeadError, bench.finish, call, "get_output() after SIGKILL", what="get_output() after SIGKILL"
        )
        expect_error(EngineDeadError, talk.client.add_request, request("late"), what="add_request() after SIGKILL")
        expect_error(EngineDeadError, talk.client.call_utility, "is_alive", what="call_utility() after SIGKILL")
    for talk in (first, second):
        bench.call("shutdown() after SIGKILL", talk.client.shutdown)


def _take_all(talk: Talk) -> None:
    while True:
        talk.take_outputs()
