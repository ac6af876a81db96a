"""Reports of a run for commands: results as plain data, speed, and components."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from enginecore.clock import RealClock
from enginecore.frontend.llm import LLM
from enginecore.frontend.outputs import RequestOutput
from enginecore.settings import load_settings, parse_overrides


class Tally:
    """Counts what finished requests gave, from its construction on."""

    def __init__(self) -> None:
        self._clock = RealClock()
        self._started = self._clock.now()
        self._num_requests = 0
        self._num_output_tokens = 0
        self._ttfts: list[float] = []

    def add(self, output: RequestOutput) -> None:
        """Count the last output of a request."""
        self._num_requests += 1
        self._num_output_tokens += output.metrics.num_output_tokens
        if (ttft := output.metrics.time_to_first_token) is not None:
            self._ttfts.append(ttft)

    def __str__(self) -> str:
        seconds = max(self._clock.now() - self._started, 1e-9)
        tokens, requests = self._num_output_tokens, self._num_requests
        text = f"{tokens} tokens in {seconds:.1f} s ({tokens / seconds:.1f} tokens/s)"
        if requests != 1:
            text = f"{requests} completions, {text}"
        if not self._ttfts:
            return text
        which = "TTFT" if len(self._ttfts) == 1 else "median TTFT"
        return f"{text}, {which} {median(self._ttfts) * 1000:.0f} ms"


def components_line(llm: LLM) -> str:
    """Which components ran, and on what."""
    info = llm.info
    parts = [f"{kind} {name}" for kind, name in info.components.items()]
    return f"{info.model} ({info.dtype} on {info.device}): {', '.join(parts)}"


def as_plain(index: int, prompt: str, output: RequestOutput) -> dict[str, Any]:
    """One finished request as JSON-able data; times in seconds."""
    completion, metrics = output.outputs[0], output.metrics
    return {
        "index": index,
        "prompt": prompt,
        "text": completion.text,
        "token_ids": completion.token_ids,
        "finish_reason": completion.finish_reason,
        "stop_reason": completion.stop_reason,
        "error": output.error,
        "num_prompt_tokens": len(output.prompt_token_ids),
        "num_cached_tokens": output.num_cached_tokens,
        "num_output_tokens": len(completion.token_ids),
        "ttft": metrics.time_to_first_token,
        "e2e_latency": metrics.e2e_latency,
    }


def load_llm(config: Path | None, overrides: Sequence[str] | None) -> LLM:
    """Start the engine that the options ask for, saying so on stderr if that is a terminal.

    Raises:
        EngineCoreError: it cannot start; says why.
    """
    loaded = load_settings(parse_overrides(overrides or ()), config_file=config)
    console = Console(stderr=True)
    with console.status(f"Loading {loaded.settings.model} ...") if console.is_terminal else nullcontext():
        llm = LLM.from_loaded(loaded)
        llm.get_tokenizer()  # now, so that the first request is not timed with it
    return llm
