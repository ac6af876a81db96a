"""Input processing for an event loop, which must not stand still meanwhile."""

import asyncio
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from enginecore.frontend.input_processor import EngineInput, InputProcessor, Message, Prompt, RequestFields
from enginecore.frontend.tokenizer import LazyTokenizer
from enginecore.messages import EngineInfo
from enginecore.sampling import SamplingParams

LONG_TEXT = 2_000
"""Characters that take about a millisecond to tokenise."""


class AsyncInputProcessor:
    """As `InputProcessor`; what takes long happens in a thread: long texts, conversations, loading the tokenizer."""

    def __init__(self, info: EngineInfo, tokenizer: LazyTokenizer) -> None:
        self._input_processor = InputProcessor(info, tokenizer)
        self._tokenizer = tokenizer

    async def process(self, prompt: Prompt, params: SamplingParams | None, fields: RequestFields) -> EngineInput:
        """Check one request. Afterwards the tokenizer is loaded if the request needs it.

        Raises:
            InvalidRequestError: what is wrong with it, and what would be right.
        """
        process = functools.partial(self._input_processor.process, prompt, params, fields)
        at_once = LONG_TEXT if self._tokenizer.is_loaded else 0
        engine_input = process() if _text_length(prompt) <= at_once else await asyncio.to_thread(process)
        if engine_input.params.detokenize and not self._tokenizer.is_loaded:
            await asyncio.to_thread(self._tokenizer)
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
        prompt = await asyncio.to_thread(
            self._input_processor.render_chat,
            messages,
            add_generation_prompt=add_generation_prompt,
            variables=variables,
        )
        return await self.process(prompt, params, fields)


def _text_length(prompt: object) -> int:
    """Characters that are to be tokenised."""
    if isinstance(prompt, Mapping) and prompt.get("prompt_token_ids") is None:
        prompt = prompt.get("prompt")
    return len(prompt) if isinstance(prompt, str) else 0
