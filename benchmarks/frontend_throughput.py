"""What `AsyncLLM` costs by itself: event loop, detokenisation and streams, with an engine core that costs nothing.

    python benchmarks/frontend_throughput.py [--streams N] [--tokens N] [--repeat N]

Prints microseconds of CPU time per token (the best run) and outputs per token, without and with detokenisation (the
tokenizer of the packaged model). An engine core "in step" leaves the event loop time to hand out each token by itself;
one that is "ahead" always has the next step ready, so that outputs merge.
"""

import argparse
import asyncio
import gc
import json
import time
from collections.abc import Iterable
from typing import Any

from enginecore import AsyncLLM, SamplingParams
from enginecore.frontend.outputs import RequestOutputKind
from enginecore.frontend.tokenizer import load_tokenizer
from enginecore.interfaces import AsyncEngineCoreClient, Tokenizer
from enginecore.messages import EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest, EngineInfo, FinishReason
from enginecore.settings import load_settings

TEXT = "The scheduler hands out tokens as long as there are any; nobody knows for how long that may be. "


class ReadyClient(AsyncEngineCoreClient):
    """Once all requests are there, each step gives each of them a token."""

    client_index = 0
    failure: BaseException | None = None
    info: Any = None
    address: Any = None

    def __init__(self, num_requests: int, token_ids: list[int], rounds: int) -> None:
        """Each step waits for so many rounds of the event loop."""
        self._rounds = rounds
        self.info = EngineInfo(
            model="ready",
            max_model_len=1 << 20,
            vocab_size=1 << 20,
            eos_token_ids=[],
            num_blocks=0,
            block_size=16,
            max_num_seqs=num_requests,
            max_num_batched_tokens=num_requests,
            enable_prefix_caching=False,
            enable_chunked_prefill=False,
            max_concurrent_batches=1,
            components={},
            seed=0,
        )
        self.began = 0.0
        self._token_ids = token_ids
        self._missing = num_requests
        self._request_ids: list[str] = []
        self._ready = asyncio.Event()
        self._steps: list[EngineCoreOutputs] = []

    def add_request(self, request: EngineCoreRequest) -> None:
        self._request_ids.append(request.request_id)
        self._missing -= 1
        if self._missing == 0:
            self._steps = [self._step(n) for n in reversed(range(len(self._token_ids)))]
            gc.collect()
            gc.freeze()
            self._ready.set()

    def _step(self, number: int) -> EngineCoreOutputs:
        reason = FinishReason.LENGTH if number == len(self._token_ids) - 1 else None
        token_id = self._token_ids[number]
        return EngineCoreOutputs(outputs=[EngineCoreOutput(name, [token_id], reason) for name in self._request_ids])

    def abort_requests(self, request_ids: Iterable[str]) -> None: ...

    async def get_output(self) -> EngineCoreOutputs:
        await self._ready.wait()
        if not self._steps:
            await asyncio.Event().wait()
        self.began = self.began or time.process_time()
        for _ in range(self._rounds):
            await asyncio.sleep(0)
        return self._steps.pop()

    async def call_utility(self, name: str, *args: Any) -> Any: ...

    async def drain(self) -> None: ...

    def shutdown(self) -> None: ...


async def consume(llm: AsyncLLM, num_tokens: int, *, detokenize: bool) -> int:
    """Read a stream; the number of its outputs."""
    params = SamplingParams(max_tokens=num_tokens, detokenize=detokenize, ignore_eos=True)
    count = 0
    async for _ in llm.generate([1, 2, 3], params, output_kind=RequestOutputKind.DELTA):
        count += 1
    return count


async def measure(
    num_streams: int, token_ids: list[int], tokenizer: Tokenizer | None, rounds: int
) -> tuple[float, float]:
    """Microseconds per token, and outputs per token."""
    client = ReadyClient(num_streams, token_ids, rounds)
    llm = AsyncLLM.from_client(client, lambda: tokenizer)  # type: ignore[arg-type, return-value]
    streams = [consume(llm, len(token_ids), detokenize=tokenizer is not None) for _ in range(num_streams)]
    num_outputs = sum(await asyncio.gather(*streams))
    seconds = time.process_time() - client.began
    gc.unfreeze()
    num_tokens = num_streams * len(token_ids)
    return seconds / num_tokens * 1e6, num_outputs / num_tokens


def main() -> None:
    """Run all combinations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    tokenizer = load_tokenizer(load_settings())
    encoded = tokenizer.encode(TEXT)
    token_ids = (encoded * (arguments.tokens // len(encoded) + 1))[: arguments.tokens]
    for chosen in (None, tokenizer):
        for pace, rounds in (("in step", 2), ("ahead", 0)):
            runs = [asyncio.run(measure(arguments.streams, token_ids, chosen, rounds)) for _ in range(arguments.repeat)]
            figures = {
                "streams": arguments.streams,
                "detokenize": chosen is not None,
                "engine_core": pace,
                "us_per_token": round(min(us for us, _ in runs), 2),
                "outputs_per_token": round(runs[0][1], 2),
            }
            print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
