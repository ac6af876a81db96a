"""LLMEngine: the synchronous front end that adds requests and steps them."""

import functools
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self, Unpack

from enginecore.client import make_client
from enginecore.clock import Clock, RealClock
from enginecore.errors import EngineDeadError
from enginecore.frontend.input_processor import (
    EngineInput,
    InputProcessor,
    Prompt,
    RequestFields,
)
from enginecore.frontend.intake import Intake
from enginecore.frontend.interrupts import InterruptGuard
from enginecore.frontend.output_processor import OutputProcessor, explain_loss
from enginecore.frontend.outputs import RequestOutput, RequestOutputKind
from enginecore.frontend.request_state import RequestState
from enginecore.frontend.tokenizer import LazyTokenizer, load_tokenizer
from enginecore.interfaces import EngineCoreClient, Tokenizer
from enginecore.messages import EngineInfo, SchedulerStats
from enginecore.request_checks import check_request_id
from enginecore.sampling import SamplingParams
from enginecore.settings import Loaded


class LLMEngine:
    """Adds requests and steps them. Not thread-safe.

        while engine.has_unfinished_requests():
            for output in engine.step(): ...

    A request id may be used again as soon as its terminal output was returned, or the request was
    aborted.
    """

    def __init__(
        self, client: EngineCoreClient, get_tokenizer: Callable[[], Tokenizer], *, clock: Clock | None = None
    ) -> None:
        """`get_tokenizer` is called at most once, by the first request that needs text; `clock`
        times requests.
        """
        self._client = client
        self._get_tokenizer = LazyTokenizer(get_tokenizer)
        self._output_processor = OutputProcessor(self._get_tokenizer, clock or RealClock())
        self._intake = Intake(client, self._output_processor, while_sending=InterruptGuard)
        self._pending: list[RequestOutput] = []
        self.input_processor = InputProcessor(client.info, self._get_tokenizer)

    @classmethod
    def from_loaded(cls, loaded: Loaded, *, clock: Clock | None = None) -> Self:
        """Start an engine with these settings.

        Raises:
            EngineCoreError: it cannot start; says why.
        """
        client = make_client(loaded, clock=clock)
        return cls(client, functools.partial(load_tokenizer, loaded), clock=clock)

    @property
    def info(self) -> EngineInfo:
        """Facts and limits of the engine core."""
        return self._client.info

    def get_tokenizer(self) -> Tokenizer:
        """The tokenizer; loaded when it is first asked for."""
        return self._get_tokenizer()

    def add_request(
        self,
        request_id: str,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE,
        **fields: Unpack[RequestFields],
    ) -> None:
        """Check and queue a request.

        Raises:
            InvalidRequestError: it is refused; nothing has changed.
        """
        check_request_id(request_id)
        self.submit_request(request_id, self.input_processor.process(prompt, params, fields), output_kind)

    def submit_request(self, request_id: str, engine_input: EngineInput, output_kind: RequestOutputKind) -> None:
        """Queue a request that `input_processor` has checked.

        Raises:
            InvalidRequestError: a live request has this id, or the engine core refuses it; nothing
                has changed.
        """
        self._intake.submit_request(request_id, engine_input, output_kind)

    def abort_request(self, request_ids: str | Iterable[str]) -> None:
        """End requests; unknown ids are left alone. The next `step` gives terminal outputs with
        reason "abort".
        """
        names = [request_ids] if isinstance(request_ids, str) else request_ids
        aborted = self._output_processor.abort_requests(names)
        self._make_outputs(aborted.states)
        if aborted.core_ids_to_abort:
            self._client.abort_requests(aborted.core_ids_to_abort)

    def has_unfinished_requests(self) -> bool:
        """Whether `step` has more to give."""
        return bool(self._pending) or self._output_processor.num_live > 0

    def step(self) -> list[RequestOutput]:
        """The next outputs: those that are due already, else those of the engine core's next step.

        Ctrl-C does not cut a step: KeyboardInterrupt comes at its end, and its outputs from the
        next call.

        Raises:
            EngineDeadError: the engine core has failed; `__cause__` says why. The next call returns
                a terminal output with reason "error" for each request that was live.
        """
        if not self._pending and self._output_processor.num_live:
            with InterruptGuard():
                self._step_engine_core()
        pending, self._pending = self._pending, []
        return pending

    def _step_engine_core(self) -> None:
        try:
            outputs = self._client.get_output()
            processed = self._output_processor.process_outputs(outputs.outputs)
            self._make_outputs(processed.states)
            if processed.core_ids_to_abort:
                self._client.abort_requests(processed.core_ids_to_abort)
            if outputs.idle and self._output_processor.num_live:
                self._fail_all(explain_loss(self.info))
        except EngineDeadError as error:
            self._fail_all(str(error))
            raise

    def _fail_all(self, error: str) -> None:
        live = self._output_processor.live
        self._output_processor.fail_requests(live, error)
        self._make_outputs(live)

    def _make_outputs(self, states: Iterable[RequestState]) -> None:
        self._pending += [state.make_output() for state in states]

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        """Forget all cached blocks. False if requests hold blocks and are not to be reset."""
        return bool(self._client.call_utility("reset_prefix_cache", reset_running_requests))

    def get_stats(self) -> SchedulerStats:
        """The scheduler's gauges of now and counters since start."""
        stats: SchedulerStats = self._client.call_utility("get_stats")
        return stats

    def shutdown(self) -> None:
        """End the engine core. May be called more than once."""
        self._client.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()
