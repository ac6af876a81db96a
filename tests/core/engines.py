"""Engine cores on the oracle executor, built from settings as users build them."""

from collections.abc import Iterable
from typing import Any

from enginecore.assembly import build_engine_core
from enginecore.clock import Clock, VirtualClock
from enginecore.core import EngineCore
from enginecore.messages import EngineCoreOutput, EngineCoreRequest
from enginecore.plugin import Component
from enginecore.sampling import SamplingParams
from enginecore.settings import load_settings

MAX_ROUNDS = 10_000


def make_core(
    *,
    oracle: dict[str, Any] | None = None,
    components: Iterable[Component] = (),
    clock: Clock | None = None,
    **settings: Any,
) -> EngineCore:
    arguments = {"executor": {"use": "oracle", "oracle": oracle or {}}, "max_model_len": "auto", "num_kv_blocks": 32}
    loaded = load_settings({**arguments, **settings}, components=components, environ={})
    return build_engine_core(loaded, clock or VirtualClock())


def request(request_id: str, prompt: int = 5, **params: Any) -> EngineCoreRequest:
    sampling = SamplingParams(**{"temperature": 0, "seed": 0, "ignore_eos": True, "max_tokens": 4, **params})
    return EngineCoreRequest(request_id=request_id, prompt_token_ids=list(range(3, 3 + prompt)), params=sampling)


def run(core: EngineCore) -> list[EngineCoreOutput]:
    """Until there is nothing more to do: the outputs of all clients, in order."""
    outputs: list[EngineCoreOutput] = []
    for _ in range(MAX_ROUNDS):
        if not core.has_requests():
            return outputs
        for due in core.advance()[0].values():
            outputs += due.outputs
    raise AssertionError(f"still busy after {MAX_ROUNDS} rounds")
