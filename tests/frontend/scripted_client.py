"""An engine core in a few lines: its model says what it is told to, its stop checks are the kernel's own."""

# pyright: reportIncompatibleMethodOverride=false, reportAssignmentType=false, reportAttributeAccessIssue=false, reportArgumentType=false

from collections.abc import Callable
from typing import Any

from enginecore.errors import InvalidRequestError
from enginecore.interfaces import EngineCoreClient
from enginecore.messages import (
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    EngineInfo,
    FinishReason,
    PositionLogprobs,
)
from enginecore.request import Request
from tests.frontend.byte_tokenizer import EOS


def make_info(**changes):
    values: dict[str, Any] = {
        "model": "scripted",
        "max_model_len": 128,
        "vocab_size": 300,
        "eos_token_ids": [EOS],
        "num_blocks": 64,
        "block_size": 16,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 64,
        "enable_prefix_caching": False,
        "enable_chunked_prefill": False,
        "max_concurrent_batches": 1,
        "components": {"executor": "scripted"},
        "seed": 7,
    }
    return EngineInfo(**(values | changes))


class ScriptedClient(EngineCoreClient):
    """Gives each request `tokens_per_step` tokens of `script(request)` per step, EOS after the last of them.

    `requests` holds all that were ever added, `aborted` all ids that were ever aborted, `live` those that run.
    `on_output` is called before each step and may raise.
    """

    client_index = 3
    info = make_info()

    def __init__(self, script: Callable[[EngineCoreRequest], list[int]], *, tokens_per_step=1, info=None):
        self.script = script
        self.tokens_per_step = tokens_per_step
        self.info = info or make_info()
        self.requests: list[EngineCoreRequest] = []
        self.live: dict[str, Request] = {}
        self.todo: dict[str, list[int]] = {}
        self.aborted: list[str] = []
        self.errors: dict[str, str] = {}
        self.late: list[EngineCoreOutput] = []
        self.num_steps = 0
        self.num_shutdowns = 0
        self.utilities: list[tuple[Any, ...]] = []
        self.on_output: Callable[[], None] = lambda: None

    def add_request(self, request):
        if request.adapter is not None:
            raise InvalidRequestError("adapters are not supported")
        assert request.request_id not in self.todo
        self.requests.append(request)
        self.live[request.request_id] = Request(
            request,
            request.params,
            arrival_number=len(self.requests),
            arrival_time=0.0,
            max_model_len=self.info.max_model_len,
            eos_token_ids=self.info.eos_token_ids,
        )
        self.todo[request.request_id] = [*self.script(request), *[EOS] * 200]

    def abort_requests(self, request_ids):
        for request_id in request_ids:
            self.aborted.append(request_id)
            self.live.pop(request_id, None)

    def get_output(self):
        self.on_output()
        self.num_steps += 1
        outputs, self.late = self.late, []
        for request_id, request in list(self.live.items()):
            outputs.append(self._advance(request_id, request))
            if outputs[-1].finish_reason is not None:
                del self.live[request_id]
        return EngineCoreOutputs(outputs=outputs)

    def _advance(self, request_id, request):
        if request_id in self.errors:
            return EngineCoreOutput(request_id, [], FinishReason.ERROR, error=self.errors[request_id])
        todo = self.todo[request_id]
        tokens, todo[:] = todo[: self.tokens_per_step], todo[self.tokens_per_step :]
        accepted = list(request.append(tokens))
        logprobs = None
        if (width := request.params.logprobs) is not None:
            logprobs = [
                PositionLogprobs(
                    token_ids=[token, *range(width)], logprobs=[-0.5, *(-1.0 - n for n in range(width))], sampled_rank=9
                )
                for token in accepted
            ]
        return EngineCoreOutput(
            request_id, accepted, request.finish_reason, request.stop_reason, logprobs=logprobs, num_cached_tokens=3
        )

    def call_utility(self, name, *args):
        self.utilities.append((name, *args))
        return True

    def shutdown(self):
        self.num_shutdowns += 1
