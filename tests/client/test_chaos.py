"""Two hundred random faults with streams open: nobody waits for ever, nobody gets a wrong token, nothing is left."""

import asyncio
import os
import random
import signal
from collections import Counter
from typing import Any

import pytest

from enginecore import AsyncLLM, SamplingParams
from enginecore.client import attach_async_client
from enginecore.errors import EngineDeadError
from enginecore.frontend.outputs import RequestOutputKind
from enginecore_conformance.oracle.model import OracleModel
from tests.client.starting import DEADLINE, Traces, load

NUM_FAULTS = 200
NUM_STREAMS = 12
DELTA = RequestOutputKind.DELTA
SETTINGS = {
    "executor.oracle.step_time": 0.002,
    "num_kv_blocks": 96,
    "max_num_seqs": 8,
    "max_num_batched_tokens": 64,
    "debug.check_invariants": True,
}
HARMLESS = ("stop and continue", "cancel", "garbage", "slow", "abort", "call", "front end comes and goes", "nothing")
LETHAL = ("SIGKILL", "SIGTERM")


class Chaos:
    """An engine, readers of its streams, and somebody who means them no good."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.ends: Counter[str | None] = Counter()
        self.serial = 0
        self.readers: set[asyncio.Task[None]] = set()
        self.slow: set[str] = set()
        self.start()

    def start(self):
        self.loaded = load(**SETTINGS)
        self.llm: Any = AsyncLLM.from_loaded(self.loaded)
        self.model = OracleModel.of_engine(self.llm.info)
        client: Any = self.llm._client
        self.pid = client.engine_core_pid

    async def run(self):
        for number in range(NUM_FAULTS):
            while len(self.readers) < NUM_STREAMS:
                self.begin_stream()
            await asyncio.sleep(self.random.random() * 0.02)
            lethal = number % 20 == 19
            fault = self.random.choice(LETHAL if lethal else HARMLESS)
            self.counts[fault] += 1
            await asyncio.wait_for(self.inflict(fault), DEADLINE)
            if lethal:
                await self.start_over()
        await self.finish()

    def begin_stream(self):
        self.serial += 1
        prompt = [self.random.randrange(256) for _ in range(self.random.randint(1, 40))]
        params = SamplingParams(
            temperature=0, ignore_eos=True, max_tokens=self.random.randint(1, 80), seed=0, detokenize=False
        )
        name = f"stream-{self.serial}"
        reader = asyncio.create_task(self.read(self.llm, self.model, name, prompt, params), name=name)
        self.readers.add(reader)
        reader.add_done_callback(self.readers.discard)

    async def read(self, llm, model, name, prompt, params):
        """One stream to its end, whichever that is; each token must be right."""
        right = model.expected_tokens(prompt, params)
        tokens: list[int] = []
        reasons: list[str | None] = []
        error = None
        try:
            async for output in llm.generate(prompt, params, name, output_kind=DELTA):
                tokens += output.outputs[0].token_ids
                assert tokens == right[: len(tokens)]
                reasons.append(output.outputs[0].finish_reason)
                error = output.error
                if name in self.slow:
                    await asyncio.sleep(0.05)
        except EngineDeadError:
            self.ends["dead"] += 1
            return
        except asyncio.CancelledError:
            self.ends["cancelled"] += 1
            raise
        assert [reason is None for reason in reasons] == [True] * (len(reasons) - 1) + [False]
        match reasons[-1]:
            case "length":
                assert tokens == right
            case "error":  # it came after a SIGTERM
                assert error == "no new requests: the engine core shuts down: it received SIGTERM"
            case reason:
                assert reason == "abort"
        self.ends[reasons[-1]] += 1

    async def inflict(self, fault):
        names = [reader.get_name() for reader in self.readers]
        match fault:
            case "SIGKILL" | "SIGTERM":
                os.kill(self.pid, getattr(signal, fault))
            case "stop and continue":
                os.kill(self.pid, signal.SIGSTOP)
                await asyncio.sleep(0.02)
                os.kill(self.pid, signal.SIGCONT)
            case "cancel":
                for reader in self.random.sample(sorted(self.readers, key=asyncio.Task.get_name), 3):
                    reader.cancel()
            case "slow":
                self.slow.update(self.random.sample(names, 2))
            case "abort":
                self.llm.abort([*self.random.sample(names, 2), "nobody"])
            case "call":
                stats, *_ = await asyncio.gather(
                    self.llm.get_stats(), self.llm.reset_prefix_cache(True), self.llm.check_health()
                )
                assert stats.num_running <= 8
            case "garbage":
                self.send_garbage()
            case "front end comes and goes":
                client = attach_async_client(self.loaded, self.llm._client.address)
                client.shutdown()

    def send_garbage(self):
        """By a front end that was let in and speaks another language."""
        choice = self.loaded.settings.component("transport")
        context: Any = None  # it only carries messages
        transport = self.loaded.registry.get("transport", choice.name).factory(choice.settings, context)
        channel = transport.open(self.llm._client.address, DEADLINE)
        for _ in range(5):
            channel.send([self.random.randbytes(self.random.randrange(200)) for _ in range(self.random.randint(1, 4))])
        channel.close()

    async def start_over(self):
        """After a lethal fault: all readers hear of it, and a new engine takes over."""
        done, pending = await asyncio.wait(self.readers, timeout=DEADLINE)
        assert not pending
        for reader in done:
            assert reader.cancelled() or reader.exception() is None, reader.exception()
        while self.llm.is_running:  # a reader may hear of its request's end before the end of all
            await asyncio.sleep(0.01)
        self.llm.shutdown()
        self.start()

    async def finish(self):
        """No more faults: what is open ends well, and nothing of anything is left in the engine."""
        if self.readers:
            await asyncio.wait_for(asyncio.gather(*self.readers, return_exceptions=True), DEADLINE)
        assert self.llm.is_running
        stats = await self.llm.get_stats()
        assert (stats.num_running, stats.num_waiting) == (0, 0)
        assert stats.num_free_blocks == stats.num_blocks
        assert await self.llm.collective_rpc("get_request_ids") == [[]]
        assert self.llm._output_processor.live == []
        await self.llm.drain()


@pytest.mark.parametrize("seed", [1])
def test_two_hundred_faults(seed):
    traces = Traces()

    async def main():
        chaos = Chaos(seed)
        try:
            await chaos.run()
        finally:
            chaos.llm.shutdown()
        return chaos

    chaos = asyncio.run(main())
    traces.check()
    assert chaos.counts.total() == NUM_FAULTS
    assert min(chaos.counts[fault] for fault in (*HARMLESS, *LETHAL)) > 0
    assert min(chaos.ends[end] for end in ("length", "abort", "cancelled", "dead")) > 0
