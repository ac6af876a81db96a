"""A small LLM inference engine core with swappable parts.

    from enginecore import LLM, SamplingParams

Names are imported when first used, so that `import enginecore` stays cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from enginecore.client import make_client
    from enginecore.frontend.async_llm import AsyncLLM
    from enginecore.frontend.llm import LLM
    from enginecore.frontend.llm_engine import LLMEngine
    from enginecore.frontend.outputs import CompletionOutput, RequestOutput, RequestOutputKind
    from enginecore.sampling import SamplingParams
    from enginecore.settings import EngineSettings

__version__ = "0.1.0"

_HOMES = {
    "AsyncLLM": "enginecore.frontend.async_llm",
    "LLM": "enginecore.frontend.llm",
    "LLMEngine": "enginecore.frontend.llm_engine",
    "CompletionOutput": "enginecore.frontend.outputs",
    "RequestOutput": "enginecore.frontend.outputs",
    "RequestOutputKind": "enginecore.frontend.outputs",
    "SamplingParams": "enginecore.sampling",
    "EngineSettings": "enginecore.settings",
    "make_client": "enginecore.client",
}

__all__ = [
    "LLM",
    "AsyncLLM",
    "CompletionOutput",
    "EngineSettings",
    "LLMEngine",
    "RequestOutput",
    "RequestOutputKind",
    "SamplingParams",
    "make_client",
]


def __getattr__(name: str) -> Any:
    if home := _HOMES.get(name):
        return getattr(import_module(home), name)
    raise AttributeError(f"module 'enginecore' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
