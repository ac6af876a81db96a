"""AsyncLLM: the front end for asyncio, with one async generator of outputs per request."""

import functools
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Unpack

from enginecore.frontend.async_engine import AsyncEngine
from enginecore.frontend.input_processor import EngineInput, Message, Prompt, RequestFields
from enginecore.frontend.outputs import RequestOutput, RequestOutputKind
from enginecore.request_checks import check_request_id
from enginecore.sampling import SamplingParams

RequestOutputs = AsyncGenerator[RequestOutput, None]


class AsyncLLM(AsyncEngine):
    """An engine and its model, for event loops: any number of requests side by side, each with a
    stream of its own. The engine core runs in another process.

        async with AsyncLLM(model="smollm2-135m") as llm:
            async for output in llm.generate("Once upon a time",
            output_kind=RequestOutputKind.DELTA):
                print(output.outputs[0].text, end="")
    """

    def generate(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE,
        **fields: Unpack[RequestFields],
    ) -> RequestOutputs:
        """Complete a prompt: an async generator of its outputs, the last of which is `finished`.

        The request is checked and submitted when the first output is asked for. However the
        generator is left before its end, the request is aborted: by `break`, `aclose()`,
        cancellation, or by dropping it. Read it as slowly as you like: what waits is merged into
        one output, and costs no more memory than the request's own text.

        Args:
            prompt: A text, a list of token ids, or a dict with "prompt", "prompt_token_ids" or
                both, where the ids count.
            sampling_params: None: `SamplingParams()`.
            request_id: For `abort`; no other live request may have it. None: one is made.
            output_kind: CUMULATIVE: everything so far. DELTA: what is new since the last output.
                FINAL_ONLY: one output.
            fields: Anything else that a request may say, for example `priority`.

        Raises:
            InvalidRequestError: the request is refused; costs no other request anything.
            EngineDeadError: the engine core has failed; `__cause__` says why.
        """
        process = functools.partial(self._input_processor.process, prompt, sampling_params, fields)
        return self._stream(process, request_id, output_kind)

    def chat(
        self,
        messages: Sequence[Message],
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE,
        add_generation_prompt: bool = True,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        **fields: Unpack[RequestFields],
    ) -> RequestOutputs:
        """Answer a conversation; otherwise as `generate`.

        Args:
            messages: Dicts with "role" and "content".
            sampling_params: As for `generate`.
            request_id: As for `generate`.
            output_kind: As for `generate`.
            add_generation_prompt: End the prompt where the assistant's answer begins.
            chat_template_kwargs: More variables for the chat template, by name.
            fields: As for `generate`.

        Raises:
            InvalidRequestError: the request is refused.
            EngineDeadError: the engine core has failed.
        """
        process = functools.partial(
            self._input_processor.process_chat,
            messages,
            sampling_params,
            fields,
            add_generation_prompt=add_generation_prompt,
            variables={} if chat_template_kwargs is None else chat_template_kwargs,
        )
        return self._stream(process, request_id, output_kind)

    def abort(self, request_ids: str | Iterable[str]) -> None:
        """End requests: their last outputs have the finish reason "abort". Unknown ids are left
        alone.

        Raises:
            EngineCoreError: called outside the event loop that reads them.
        """
        self._output_handler.abort([request_ids] if isinstance(request_ids, str) else request_ids)

    async def _stream(
        self, process: Callable[[], Awaitable[EngineInput]], request_id: str | None, kind: RequestOutputKind
    ) -> RequestOutputs:
        self._output_handler.running_task()
        if request_id is not None:
            check_request_id(request_id)
        engine_input = await process()
        stream = self._output_handler.open_stream(request_id or self._unused_id(), engine_input, kind)
        try:
            while True:
                if (output := stream.take()) is None:
                    self._output_handler.running_task()
                    await stream.wait()
                else:
                    yield output
                    if output.finished:
                        return
        finally:
            self._output_handler.close_stream(stream)

    def _unused_id(self) -> str:
        """The next id made here that no live request has; users may have given it to one."""
        return next(name for n in self._serial if not self._output_processor.is_live(name := f"generate-{n}"))
