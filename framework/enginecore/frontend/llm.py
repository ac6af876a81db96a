"""LLM: prompts in, completions out. The front end for scripts."""

import itertools
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from enginecore.clock import Clock
from enginecore.errors import EngineCoreError, PluginError
from enginecore.frontend.input_processor import CommonFields, EngineInput, Message, Prompt, RequestFields, TokensPrompt
from enginecore.frontend.llm_engine import LLMEngine
from enginecore.frontend.outputs import RequestOutput, RequestOutputKind
from enginecore.frontend.progress import progress_bar
from enginecore.frontend.prompts import list_conversations, list_prompts, naming, spread
from enginecore.interfaces import Tokenizer
from enginecore.messages import EngineInfo, SchedulerStats
from enginecore.plugin import Component
from enginecore.registry import PluginRecord
from enginecore.sampling import SamplingParams
from enginecore.settings import Loaded, load_settings

IndexedOutputs = Generator[tuple[int, RequestOutput], None, None]
DELTA, FINAL_ONLY = RequestOutputKind.DELTA, RequestOutputKind.FINAL_ONLY


class LLM:
    """An engine and its model, for batches of prompts.

        with LLM(model="smollm2-135m", max_num_seqs=64) as llm:
            for output in llm.generate(["Once upon a time"], SamplingParams(max_tokens=32)):
                print(output.outputs[0].text)

    Attributes:
        loaded: The settings that it was started with, and the plugins.
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
            settings: Any setting by name, for example `max_num_seqs=8` or `scheduler={"use":
                "fcfs"}`.

        Raises:
            EngineCoreError: it cannot start; says why.
        """
        arguments = settings if model is None else {"model": model, **settings}
        loaded = load_settings(arguments, config_file=config_file, components=components)
        self._start(loaded, clock)

    @classmethod
    def from_loaded(cls, loaded: Loaded, *, clock: Clock | None = None) -> Self:
        """Start an engine with settings that were read already.

        Raises:
            EngineCoreError: it cannot start; says why.
        """
        llm = cls.__new__(cls)
        llm._start(loaded, clock)
        return llm

    def _start(self, loaded: Loaded, clock: Clock | None) -> None:
        self.loaded = loaded
        self.llm_engine = LLMEngine.from_loaded(loaded, clock=clock)
        self._serial = itertools.count()

    @property
    def origins(self) -> dict[str, PluginRecord]:
        """Which plugin each running component comes from, by kind of component."""
        running = self.info.components.items()
        return {kind: self._origin(kind, name) for kind, name in running}

    def _origin(self, kind: str, name: str) -> PluginRecord:
        for record in self.loaded.registry.plugins:
            if record.status == "active" and any((c.kind, c.name) == (kind, name) for c in record.components):
                return record
        raise PluginError(f"no active plugin offers {kind} {name!r}")

    @property
    def info(self) -> EngineInfo:
        """Facts and limits of the engine core."""
        return self.llm_engine.info

    def get_tokenizer(self) -> Tokenizer:
        """The tokenizer; loaded when it is first asked for."""
        return self.llm_engine.get_tokenizer()

    def generate(
        self,
        prompts: Prompt | Iterable[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        priority: float | Sequence[float] = 0,
        **fields: Unpack[CommonFields],
    ) -> list[RequestOutput]:
        """Complete prompts; the outputs are in their order.

        All prompts are checked before the first one is queued: one that cannot be accepted costs no
        work. What goes wrong later ends only the request concerned, with the finish reason "error".
        After any exception, Ctrl-C included, nothing of this call is left in the engine.

        Args:
            prompts: One or many. A prompt is a text, a list of token ids, or a dict with "prompt",
                "prompt_token_ids" or both, where the ids count. Any iterable of prompts will do,
                and is read to its end before anything is queued; an empty one is no prompts.
            sampling_params: For all, or one per prompt. None: `SamplingParams()`.
            use_tqdm: Show progress, if stderr is a terminal.
            priority: For all, or one per prompt. Smaller is more urgent.
            fields: Anything else that a request may say, for all.

        Raises:
            InvalidRequestError: a prompt is refused; says which, and why.
            EngineDeadError: the engine core has failed.
        """
        inputs = self._prepare(prompts, sampling_params, priority, fields)
        results: dict[int, RequestOutput] = {}
        with progress_bar(len(inputs), shown=use_tqdm) as advance, closing(self._run(inputs, FINAL_ONLY)) as outputs:
            for index, output in outputs:
                results[index] = output
                advance(output)
        return [results[index] for index in range(len(inputs))]

    def stream(
        self,
        prompts: Prompt | Iterable[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        output_kind: RequestOutputKind = DELTA,
        priority: float | Sequence[float] = 0,
        **fields: Unpack[CommonFields],
    ) -> IndexedOutputs:
        """As `generate`, but each output is given as soon as it is there.

        Prompts are checked here, and queued when the first output is asked for. A loop that is left
        early ends what still runs.

        Args:
            prompts: As for `generate`.
            sampling_params: As for `generate`.
            output_kind: DELTA: what is new since the last one. CUMULATIVE: everything so far.
                FINAL_ONLY: one output per prompt, in the order in which they end.
            priority: As for `generate`.
            fields: As for `generate`.

        Returns:
            Pairs of a prompt's index and an output; the last output of a prompt is `finished`.

        Raises:
            InvalidRequestError: a prompt is refused; says which, and why.
        """
        return self._run(self._prepare(prompts, sampling_params, priority, fields), output_kind)

    def chat(
        self,
        messages: Iterable[Message] | Iterable[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        add_generation_prompt: bool = True,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        priority: float | Sequence[float] = 0,
        **fields: Unpack[CommonFields],
    ) -> list[RequestOutput]:
        """Answer one conversation or many; otherwise as `generate`.

        Args:
            messages: A list of dicts with "role" and "content", or a list of such lists; an
                iterable as for `generate`.
            sampling_params: For all, or one per conversation.
            use_tqdm: Show progress, if stderr is a terminal.
            add_generation_prompt: End the prompt where the assistant's answer begins.
            chat_template_kwargs: More variables for the chat template, by name.
            priority: For all, or one per conversation.
            fields: Anything else that a request may say, for all.

        Raises:
            InvalidRequestError: a conversation is refused; says which, and why.
            EngineDeadError: the engine core has failed.
        """
        conversations = list_conversations(messages)
        prompts: list[Prompt] = []
        for index, conversation in enumerate(conversations):
            with naming("conversation", index, len(conversations)):
                prompts.append(self.render_chat(conversation, add_generation_prompt, chat_template_kwargs))
        return self.generate(prompts, sampling_params, use_tqdm=use_tqdm, priority=priority, **fields)

    def render_chat(
        self,
        messages: Sequence[Message],
        add_generation_prompt: bool = True,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> TokensPrompt:
        """The prompt for one conversation, by the model's chat template; for `generate` and
        `stream`.

        Raises:
            InvalidRequestError: these are not messages, the template refuses them, or a variable
                cannot be passed.
        """
        return self.llm_engine.input_processor.render_chat(
            messages,
            add_generation_prompt=add_generation_prompt,
            variables={} if chat_template_kwargs is None else chat_template_kwargs,
        )

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        """Forget all cached blocks. False if requests hold blocks and are not to be reset."""
        return self.llm_engine.reset_prefix_cache(reset_running_requests)

    def get_stats(self) -> SchedulerStats:
        """The scheduler's gauges of now and counters since start."""
        return self.llm_engine.get_stats()

    def shutdown(self) -> None:
        """End the engine. May be called more than once."""
        self.llm_engine.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def _prepare(
        self,
        prompts: Prompt | Iterable[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None,
        priority: float | Sequence[float],
        fields: CommonFields,
    ) -> list[EngineInput]:
        """Check all prompts; nothing is queued yet."""
        batch = list_prompts(prompts)
        all_params = spread("sampling_params", sampling_params, len(batch))
        priorities = spread("priority", priority, len(batch))
        inputs = []
        for index, (prompt, params, urgency) in enumerate(zip(batch, all_params, priorities, strict=True)):
            request_fields: RequestFields = {**fields, "priority": urgency}
            with naming("prompt", index, len(batch)):
                inputs.append(self.llm_engine.input_processor.process(prompt, params, request_fields))
        return inputs

    def _run(self, inputs: Sequence[EngineInput], kind: RequestOutputKind) -> IndexedOutputs:
        """Queue all, step until all of them have ended; leave nothing behind, whatever happens."""
        if self.llm_engine.has_unfinished_requests():
            raise EngineCoreError("requests that were added to `llm_engine` have outputs yet to come: step it first")
        index_of: dict[str, int] = {}
        try:
            for index, engine_input in enumerate(inputs):
                request_id = f"llm-{next(self._serial)}"
                self.llm_engine.submit_request(request_id, engine_input, kind)
                index_of[request_id] = index
            while self.llm_engine.has_unfinished_requests():
                for output in self.llm_engine.step():
                    if output.request_id not in index_of:
                        raise EngineCoreError(
                            f"request {output.request_id!r} was added to `llm_engine` while this call runs: "
                            "step requests of your own on an engine of their own"
                        )
                    yield index_of[output.request_id], output
        finally:
            self._discard(index_of)

    def _discard(self, request_ids: Iterable[str]) -> None:
        """End those that still run, and drop what is yet to be said of them."""
        with suppress(EngineCoreError):  # a dead engine has nothing left to abort
            self.llm_engine.abort_request(request_ids)
        while self.llm_engine.has_unfinished_requests():
            self.llm_engine.step()
