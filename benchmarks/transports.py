"""What a process boundary costs: `inproc`, and both halves of `zmq`, on the oracle executor, which needs no model.

    python benchmarks/transports.py [--only start,calls,tokens,overlap,sustained]

- start: seconds to start and to stop an engine.
- calls: round trip of a utility call, in microseconds.
- tokens: microseconds of CPU per token in engine core and client, without text, for 1, 64 and 256 streams.
- overlap: how much longer a step of 10 ms with 256 streams gets behind each transport than in one process.
- sustained: tokens per second through AsyncLLM at 256 streams with detokenisation; the executor takes no time.

Keep the machine idle meanwhile.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import psutil

from enginecore import AsyncLLM, SamplingParams
from enginecore.client import make_async_client, make_client
from enginecore.frontend.outputs import RequestOutputKind
from enginecore.interfaces import AsyncEngineCoreClient, EngineCoreClient
from enginecore.messages import EngineCoreOutputs, EngineCoreRequest
from enginecore.settings import Loaded, load_settings

STREAMS = (1, 64, 256)
PROMPT = 16
STEP_TIME = 0.010


def load(transport: str, **oracle: Any) -> Loaded:
    """Settings of an engine on the oracle, with room for 256 requests of 1,024 tokens."""
    settings = {
        "model": "smollm2-135m",
        "transport.use": transport,
        "executor.use": "oracle",
        "executor.oracle": {"verify": False, "read_back": False, "vocab_size": 49152, "kv_memory": 1 << 22, **oracle},
        "max_model_len": 4096,
        "max_num_batched_tokens": 8192,
        "enable_prefix_caching": False,
    }
    return load_settings(settings, environ={})


def make_requests(count: int, num_tokens: int) -> list[EngineCoreRequest]:
    """Requests that end after so many tokens each."""
    params = SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True, seed=0, detokenize=False)
    return [
        EngineCoreRequest(request_id=f"{time.monotonic_ns()}-{n}", prompt_token_ids=[n + 1] * PROMPT, params=params)
        for n in range(count)
    ]


def count_tokens(outputs: EngineCoreOutputs) -> int:
    """Tokens in one step's outputs."""
    return sum(len(output.new_token_ids) for output in outputs.outputs)


class Sync:
    """An engine behind a synchronous client."""

    def __init__(self, transport: str, **oracle: Any) -> None:
        self.name = transport
        self.client: EngineCoreClient = make_client(load(transport, **oracle))
        self.core = _process_of(self.client)

    def run(self, requests: Sequence[EngineCoreRequest], num_tokens: int) -> None:
        """Read all tokens."""
        for request in requests:
            self.client.add_request(request)
        while num_tokens > 0:
            num_tokens -= count_tokens(self.client.get_output())

    def call(self, count: int) -> list[float]:
        """Seconds of so many calls."""
        return [_timed(lambda: self.client.call_utility("is_alive")) for _ in range(count)]


class Async:
    """An engine behind an asyncio client."""

    def __init__(self, transport: str, **oracle: Any) -> None:
        self.name = f"{transport}, asyncio"
        self.client: AsyncEngineCoreClient = make_async_client(load(transport, **oracle))
        self.core = _process_of(self.client)

    def run(self, requests: Sequence[EngineCoreRequest], num_tokens: int) -> None:
        """Read all tokens, in an event loop."""

        async def main() -> None:
            left = num_tokens
            for request in requests:
                self.client.add_request(request)
            while left > 0:
                left -= count_tokens(await self.client.get_output())

        asyncio.run(main())

    def call(self, count: int) -> list[float]:
        """Seconds of so many calls."""

        async def main() -> list[float]:
            async def read() -> None:
                while True:
                    await self.client.get_output()

            reading = asyncio.create_task(read())
            seconds = []
            for _ in range(count):
                begin = time.perf_counter()
                await self.client.call_utility("is_alive")
                seconds.append(time.perf_counter() - begin)
            reading.cancel()
            return seconds

        return asyncio.run(main())


Engine = Sync | Async
ENGINES: tuple[Callable[..., Engine], ...] = (
    lambda **oracle: Sync("inproc", **oracle),
    lambda **oracle: Sync("zmq", **oracle),
    lambda **oracle: Async("zmq", **oracle),
)


def _process_of(client: Any) -> psutil.Process | None:
    pid = getattr(client, "engine_core_pid", None)
    return None if pid is None else psutil.Process(pid)


def _timed(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _cpu_seconds(process: psutil.Process | None) -> float:
    return 0.0 if process is None else sum(process.cpu_times()[:2])


def measure_start() -> None:
    """Start and stop."""
    print("start and stop, seconds (median of 5)")
    for make in ENGINES:
        starts, stops, name = [], [], ""
        for _ in range(5):
            begin = time.perf_counter()
            engine = make()
            starts.append(time.perf_counter() - begin)
            stops.append(_timed(engine.client.shutdown))
            name = engine.name
        print(f"  {name:14} {statistics.median(starts):6.3f} {statistics.median(stops):6.3f}", flush=True)


def measure_calls() -> None:
    """Utility calls."""
    print("round trip of a utility call, us (median, 99th percentile of 2,000)")
    for make in ENGINES:
        engine = make()
        engine.call(200)
        seconds = sorted(engine.call(2000))
        print(f"  {engine.name:14} {1e6 * seconds[1000]:6.0f} {1e6 * seconds[1980]:6.0f}", flush=True)
        engine.client.shutdown()


def measure_tokens() -> None:
    """CPU per token."""
    print("CPU per token, us: engine core + client (tokens/s)")
    for make in ENGINES:
        for streams in STREAMS:
            engine = make()
            engine.run(make_requests(1, 8), 8)
            num_tokens = 2000 if streams == 1 else 300
            core, own, begin = _cpu_seconds(engine.core), time.process_time(), time.perf_counter()
            engine.run(make_requests(streams, num_tokens), streams * num_tokens)
            seconds, total = time.perf_counter() - begin, streams * num_tokens
            own, core = time.process_time() - own, _cpu_seconds(engine.core) - core
            print(
                f"  {engine.name:14} {streams:4} streams {1e6 * core / total:7.2f} + {1e6 * own / total:6.2f}"
                f"   ({total / seconds:,.0f})",
                flush=True,
            )
            engine.client.shutdown()


def measure_overlap() -> None:
    """Length of a step that the model takes 10 ms for."""
    print(f"a step of {1000 * STEP_TIME:g} ms with 256 streams, ms (and beyond inproc)")
    base = 0.0
    for make in ENGINES:
        engine = make(step_time=STEP_TIME)
        engine.run(make_requests(256, 20), 256 * 20)
        steps = 300
        begin = time.perf_counter()
        engine.run(make_requests(256, steps), 256 * steps)
        step = (time.perf_counter() - begin) / steps
        base = base or step
        print(f"  {engine.name:14} {1000 * step:6.2f}   {step / base - 1:+.1%}", flush=True)
        engine.client.shutdown()


def measure_sustained(streams: int = 256, num_tokens: int = 400) -> None:
    """All the way to text, in an event loop."""

    async def read(llm: AsyncLLM, number: int, params: SamplingParams) -> int:
        count = 0
        prompt = {"prompt_token_ids": [number + 1] * PROMPT}
        async for output in llm.generate(prompt, params, output_kind=RequestOutputKind.DELTA):
            count += len(output.outputs[0].token_ids)
        return count

    async def main() -> None:
        params = SamplingParams(temperature=1, max_tokens=num_tokens, ignore_eos=True)
        async with AsyncLLM.from_loaded(load("zmq")) as llm:
            core = _process_of(llm._client)
            await read(llm, 1, params)
            for _ in range(3):
                before, own, begin = _cpu_seconds(core), time.process_time(), time.perf_counter()
                total = sum(await asyncio.gather(*(read(llm, n, params) for n in range(streams))))
                seconds = time.perf_counter() - begin
                own, used = time.process_time() - own, _cpu_seconds(core) - before
                print(
                    f"  {total / seconds:,.0f} tokens/s; CPU per token {1e6 * used / total:.2f} us in the engine core, "
                    f"{1e6 * own / total:.2f} us in the front end",
                    flush=True,
                )

    print(f"sustained through AsyncLLM: {streams} streams of {num_tokens} tokens, with text")
    asyncio.run(main())


MEASUREMENTS: dict[str, Callable[[], None]] = {
    "start": measure_start,
    "calls": measure_calls,
    "tokens": measure_tokens,
    "overlap": measure_overlap,
    "sustained": measure_sustained,
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(MEASUREMENTS), help="names from the list above")
    for name in parser.parse_args().only.split(","):
        MEASUREMENTS[name]()


if __name__ == "__main__":
    main()
