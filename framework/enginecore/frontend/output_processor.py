"""From what the engine core gives to what users get: text, stop strings, and one terminal output per request."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple
from weakref import WeakValueDictionary

from enginecore.clock import Clock
from enginecore.errors import InvalidRequestError
from enginecore.frontend.detokenizer import Detokenizer
from enginecore.frontend.input_processor import EngineInput
from enginecore.frontend.logprobs_processor import LogprobsProcessor
from enginecore.frontend.outputs import RequestOutput, RequestOutputKind
from enginecore.frontend.request_state import RequestState
from enginecore.frontend.stop_strings import StopStringMatcher
from enginecore.interfaces import Tokenizer
from enginecore.messages import EngineCoreOutputs, FinishReason


class ProcessedOutputs(NamedTuple):
    """What one step of the engine core became.

    Attributes:
        request_outputs: For users.
        core_ids_to_abort: Requests that ended here and that the engine core must still be told to end.
    """

    request_outputs: list[RequestOutput]
    core_ids_to_abort: list[str]


class OutputProcessor:
    """Owns the front end's state of all live requests, from `add_request` to their terminal output.

    The engine core knows each request by an id that is never used twice, so that a late output cannot hit a later
    request of the same name: what arrives for an id that is not live is dropped.
    """

    def __init__(self, get_tokenizer: Callable[[], Tokenizer], clock: Clock) -> None:
        """`get_tokenizer` is called only for requests that need text."""
        self._get_tokenizer = get_tokenizer
        self._clock = clock
        self._by_core_id: dict[str, RequestState] = {}
        self._by_request_id: dict[str, RequestState] = {}
        # as long as some live request has these stop strings
        self._matchers: WeakValueDictionary[tuple[str, ...], StopStringMatcher] = WeakValueDictionary()

    @property
    def num_live(self) -> int:
        """Requests without a terminal output."""
        return len(self._by_core_id)

    def add_request(self, request_id: str, core_id: str, engine_input: EngineInput, kind: RequestOutputKind) -> None:
        """Expect outputs for `core_id`.

        Raises:
            InvalidRequestError: a live request is called `request_id`.
        """
        if request_id in self._by_request_id:
            raise InvalidRequestError(f"request_id {request_id!r} is taken by a request that has not ended yet")
        params = engine_input.params
        tokenizer = self._get_tokenizer() if params.detokenize else None
        detokenizer = None
        if tokenizer is not None:
            matcher = self._matcher(params.stop)
            detokenizer = Detokenizer(tokenizer, engine_input.prompt_token_ids, params, matcher)
        state = RequestState(
            request_id,
            core_id,
            engine_input,
            kind,
            detokenizer=detokenizer,
            logprobs=None if params.logprobs is None else LogprobsProcessor(tokenizer),
            arrival_time=self._clock.now(),
        )
        self._by_request_id[request_id] = self._by_core_id[core_id] = state

    def process_outputs(self, outputs: EngineCoreOutputs) -> ProcessedOutputs:
        """Apply one step's outputs. A fault in one request's text ends that request alone."""
        now = self._clock.now()
        processed = ProcessedOutputs([], [])
        for output in outputs.outputs:
            state = self._by_core_id.get(output.request_id)
            if state is None:
                continue
            try:
                state.update(output, now)
            except Exception as error:  # a tokenizer is a plugin: if it fails on one text, no other request pays
                state.fail(f"{type(error).__name__}: {error}")
            if state.finish_reason is not None:
                self._forget(state)
                if output.finish_reason is None:
                    processed.core_ids_to_abort.append(state.core_id)
            elif state.kind is RequestOutputKind.FINAL_ONLY:
                continue
            processed.request_outputs.append(state.make_output(now))
        return processed

    def abort_requests(self, request_ids: Iterable[str]) -> ProcessedOutputs:
        """End requests at once, with their terminal outputs. Ids of no live request are left alone."""
        states = [self._by_request_id[name] for name in dict.fromkeys(request_ids) if name in self._by_request_id]
        outputs = self._finish(states, FinishReason.ABORT)
        return ProcessedOutputs(outputs, [state.core_id for state in states])

    def fail_requests(self, error: str) -> list[RequestOutput]:
        """End all requests because the engine core is dead; returns their terminal outputs."""
        return self._finish(list(self._by_core_id.values()), FinishReason.ERROR, error)

    def discard(self, request_id: str) -> None:
        """Forget a request that the engine core never accepted; it gets no output."""
        if (state := self._by_request_id.get(request_id)) is not None:
            self._forget(state)

    def _matcher(self, stops: tuple[str, ...]) -> StopStringMatcher | None:
        if not stops:
            return None
        if (matcher := self._matchers.get(stops)) is None:
            matcher = self._matchers[stops] = StopStringMatcher(stops)
        return matcher

    def _finish(
        self, states: Sequence[RequestState], reason: FinishReason, error: str | None = None
    ) -> list[RequestOutput]:
        now = self._clock.now()
        for state in states:
            self._forget(state)
            try:
                state.finish(reason, error)
            except Exception as fault:  # see above
                state.fail(f"{type(fault).__name__}: {fault}")
        return [state.make_output(now) for state in states]

    def _forget(self, state: RequestState) -> None:
        del self._by_core_id[state.core_id]
        del self._by_request_id[state.request_id]
