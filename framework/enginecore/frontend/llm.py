"""LLM: prompts in, completions out. The front end for scripts."""

import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack, cast

from enginecore.clock import Clock
from enginecore.errors import EngineCoreError, InvalidRequestError
from enginecore.frontend.input_processor import CommonFields, EngineInput, Message, Prompt, RequestFields
from enginecore.frontend.interrupts import InterruptGuard
from enginecore.frontend.llm_engine import LLMEngine
from enginecore.frontend.outputs import RequestOutput, RequestOutputKind
from enginecore.frontend.progress import progress_bar
from enginecore.interfaces import Tokenizer
from enginecore.messages import EngineInfo
from enginecore.plugin import Component
from enginecore.sampling import SamplingParams
from enginecore.settings import load_settings


class LLM:
    """An engine and its model, for batches of prompts.

        with LLM(model="smollm2-135m", max_num_seqs=64) as llm:
            for output in llm.generate(["Once upon a time"], SamplingParams(max_tokens=32)):
                print(output.outputs[0].text)

    Attributes:
        llm_engine: The engine, for those who add and step requests themselves.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        config_file: str | Path | None = None,
        components: Sequence[Component] = (),
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        """Start an engine.

        Args:
            model: Folder, GGUF file, hub id or name; None: as the other sources of settings say.
            config_file: TOML, YAML or JSON file with settings.
            components: Components beside those of installed plugins.
            clock: The engine's clock; None: wall time.
            settings: Any setting by name, for example `max_num_seqs=8` or `scheduler={"use": "fcfs"}`.

        Raises:
            EngineCoreError: it cannot start; says why.
        """
        arguments = settings if model is None else {"model": model, **settings}
        loaded = load_settings(arguments, config_file=config_file, components=components)
        self.llm_engine = LLMEngine.from_loaded(loaded, clock=clock)
        self._serial = itertools.count()

    @property
    def info(self) -> EngineInfo:
        """What is in force in the engine core."""
        return self.llm_engine.info

    def get_tokenizer(self) -> Tokenizer:
        """The tokenizer; loaded when it is first asked for."""
        return self.llm_engine.get_tokenizer()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        priority: float | Sequence[float] = 0,
        **fields: Unpack[CommonFields],
    ) -> list[RequestOutput]:
        """Complete prompts; the outputs are in their order.

        All prompts are checked before the first one is queued: one that cannot be accepted costs no work. What goes
        wrong later ends only the request concerned, with the finish reason "error". After any exception, Ctrl-C
        included, nothing of this call is left in the engine.

        Args:
            prompts: One or many. A prompt is a text, a list of token ids, or a dict with "prompt", "prompt_token_ids"
                or both, where the ids count. An empty list is no prompts.
            sampling_params: For all, or one per prompt. None: `SamplingParams()`.
            use_tqdm: Show progress, if stderr is a terminal.
            priority: For all, or one per prompt. Smaller is more urgent.
            fields: Anything else that a request may say, for all.

        Raises:
            InvalidRequestError: a prompt is refused; says which, and why.
            EngineDeadError: the engine core has failed.
        """
        batch = cast(Sequence[Prompt], [prompts] if _is_one_prompt(prompts) else prompts)
        all_params = _per_prompt("sampling_params", sampling_params, len(batch))
        priorities = _per_prompt("priority", priority, len(batch))
        inputs = []
        for index, (prompt, params, urgency) in enumerate(zip(batch, all_params, priorities, strict=True)):
            request_fields: RequestFields = {**fields, "priority": urgency}
            try:
                inputs.append(self.llm_engine.input_processor.process(prompt, params, request_fields))
            except InvalidRequestError as error:
                raise InvalidRequestError(f"prompt {index} of {len(batch)}: {error}") from error
        return self._run(inputs, use_tqdm)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        add_generation_prompt: bool = True,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        **fields: Unpack[CommonFields],
    ) -> list[RequestOutput]:
        """Answer one conversation or many; otherwise as `generate`.

        Args:
            messages: A list of dicts with "role" and "content", or a list of such lists.
            sampling_params: For all, or one per conversation.
            use_tqdm: Show progress, if stderr is a terminal.
            add_generation_prompt: End the prompt where the assistant's answer begins.
            chat_template_kwargs: More variables for the chat template.
            fields: Anything else that a request may say, for all.

        Raises:
            InvalidRequestError: a conversation is refused; says which, and why.
            EngineDeadError: the engine core has failed.
        """
        one = bool(messages) and isinstance(messages[0], Mapping)
        conversations = cast(Sequence[Sequence[Message]], [messages] if one else messages)
        prompts: list[Prompt] = []
        for index, conversation in enumerate(conversations):
            try:
                prompts.append(
                    self.llm_engine.input_processor.render_chat(
                        conversation,
                        add_generation_prompt=add_generation_prompt,
                        variables=chat_template_kwargs or {},
                    )
                )
            except InvalidRequestError as error:
                raise InvalidRequestError(f"conversation {index} of {len(conversations)}: {error}") from error
        return self.generate(prompts, sampling_params, use_tqdm=use_tqdm, **fields)

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        """Forget all cached blocks. False if requests hold blocks and are not to be reset."""
        return self.llm_engine.reset_prefix_cache(reset_running_requests)

    def shutdown(self) -> None:
        """End the engine. May be called more than once."""
        self.llm_engine.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def _run(self, inputs: Sequence[EngineInput], use_tqdm: bool) -> list[RequestOutput]:
        """Queue all, step until all of them have ended; leave nothing behind, whatever happens."""
        if self.llm_engine.has_unfinished_requests():
            raise EngineCoreError("requests that were added to `llm_engine` have outputs yet to come: step it first")
        request_ids: list[str] = []
        results: dict[str, RequestOutput] = {}
        try:
            with InterruptGuard() as interrupts, progress_bar(len(inputs), shown=use_tqdm) as advance:
                for engine_input in inputs:
                    request_ids.append(f"llm-{next(self._serial)}")
                    self.llm_engine.submit(request_ids[-1], engine_input, RequestOutputKind.FINAL_ONLY)
                while len(results) < len(inputs):
                    for output in self.llm_engine.step():
                        results[output.request_id] = output
                        advance(output)
                    interrupts.check()
        except BaseException:
            with suppress(EngineCoreError):  # a dead engine has nothing left to abort
                self.llm_engine.abort_request(request_ids)
            self.llm_engine.step()  # takes the terminal outputs of those that were aborted
            raise
        return [results[request_id] for request_id in request_ids]


def _is_one_prompt(prompts: object) -> bool:
    if isinstance(prompts, str | Mapping):
        return True
    return isinstance(prompts, Sequence) and bool(prompts) and isinstance(prompts[0], int)


def _per_prompt(name: str, value: Any, count: int) -> Sequence[Any]:
    """One value for each of `count` prompts."""
    if not isinstance(value, list | tuple):
        return [value] * count
    if len(value) != count:
        raise InvalidRequestError(f"{name} must be one for all or one per prompt: got {len(value)} for {count} prompts")
    return value
