"""Input processing that does not block the event loop."""

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from enginecore.frontend.input_processor import EngineInput, InputProcessor, Message, Prompt, RequestFields
from enginecore.frontend.tokenizer import LazyTokenizer
from enginecore.interfaces import Tokenizer
from enginecore.messages import EngineInfo
from enginecore.sampling import SamplingParams

T = TypeVar("T")

LONG_TEXT = 2_000
"""Characters that take about a millisecond to tokenise."""


class AsyncInputProcessor:
    """As `InputProcessor`; what takes long happens in a thread: loading the tokenizer, and long
    texts.

    Requests with short texts, or none, come out in the order in which they went in, even while the
    tokenizer is loaded.
    """

    def __init__(self, info: EngineInfo, tokenizer: LazyTokenizer) -> None:
        self._input_processor = InputProcessor(info, tokenizer)
        self._tokenizer = tokenizer
        self._loading: asyncio.Task[Tokenizer] | None = None

    async def process(self, prompt: Prompt, params: SamplingParams | None, fields: RequestFields) -> EngineInput:
        """Check one request. Afterwards the tokenizer is loaded if the request needs it.

        Raises:
            InvalidRequestError: what is wrong with it, and what would be right.
        """
        process = functools.partial(self._input_processor.process, prompt, params, fields)
        engine_input = await self._with_text(process, _length_of_prompt(prompt))
        if engine_input.params.detokenize:
            await self._load_tokenizer()
        return engine_input

    async def process_chat(
        self,
        messages: Sequence[Message],
        params: SamplingParams | None,
        fields: RequestFields,
        *,
        add_generation_prompt: bool,
        variables: Mapping[str, Any],
    ) -> EngineInput:
        """Check one conversation, and make a prompt of it by the model's chat template.

        Raises:
            InvalidRequestError: what is wrong with it, and what would be right.
        """
        render = functools.partial(
            self._input_processor.render_chat,
            messages,
            add_generation_prompt=add_generation_prompt,
            variables=variables,
        )
        return await self.process(await self._with_text(render, _length_of_chat(messages)), params, fields)

    async def _with_text(self, work: Callable[[], T], length: int) -> T:
        """Do what has so many characters to tokenise."""
        if length:
            await self._load_tokenizer()
        return work() if length <= LONG_TEXT else await asyncio.to_thread(work)

    async def _load_tokenizer(self) -> None:
        if self._tokenizer.is_loaded:
            return
        loading = self._loading
        if loading is None or loading.done() or loading.get_loop() is not asyncio.get_running_loop():
            loading = self._loading = asyncio.create_task(asyncio.to_thread(self._tokenizer))
            loading.add_done_callback(lambda task: task.cancelled() or task.exception())  # all waiters may be gone
        await asyncio.shield(loading)  # a request that is cancelled does not cancel it for the others


def _length_of_prompt(prompt: object) -> int:
    if isinstance(prompt, Mapping) and prompt.get("prompt_token_ids") is None:
        prompt = prompt.get("prompt")
    return len(prompt) if isinstance(prompt, str) else 0


def _length_of_chat(messages: object) -> int:
    """At least 1: the template itself is text."""
    if not isinstance(messages, Sequence):
        return 1
    return 1 + sum(_length_of_prompt(message.get("content")) for message in messages if isinstance(message, Mapping))
