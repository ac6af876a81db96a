"""Output processing: text, stop strings, and exactly one last output per request."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from enginecore.clock import Clock
from enginecore.errors import InvalidRequestError
from enginecore.frontend.detokenizer import Detokenizer
from enginecore.frontend.input_processor import EngineInput
from enginecore.frontend.logprobs_processor import LogprobsProcessor
from enginecore.frontend.outputs import RequestOutputKind
from enginecore.frontend.request_state import RequestState
from enginecore.interfaces import Tokenizer
from enginecore.messages import EngineCoreOutput, EngineInfo, FinishReason


class Processed(NamedTuple):
    """Changes that outputs of the engine core, or an abort, made.

    Attributes:
        states: Requests that have news for their users: `make_output` is due. Those that have ended
            are forgotten here.
        core_ids_to_abort: Requests that ended here and still run in the engine core.
    """

    states: list[RequestState]
    core_ids_to_abort: list[str]


class OutputProcessor:
    """Owns the front end's state of all live requests, from `add_request` to their terminal output.

    The engine core knows each request by an id that is never used twice, so that a late output
    cannot hit a later request of the same name: what arrives for an id that is not live is dropped.
    """

    def __init__(self, get_tokenizer: Callable[[], Tokenizer], clock: Clock) -> None:
        """`get_tokenizer` is called only for requests that need text."""
        self._get_tokenizer = get_tokenizer
        self._clock = clock
        self._by_core_id: dict[str, RequestState] = {}
        self._by_request_id: dict[str, RequestState] = {}

    @property
    def live(self) -> list[RequestState]:
        """Requests that have not ended."""
        return list(self._by_core_id.values())

    @property
    def num_live(self) -> int:
        """How many requests have not ended."""
        return len(self._by_core_id)

    def is_live(self, request_id: str) -> bool:
        """Whether the request of this name has not ended."""
        return request_id in self._by_request_id

    def add_request(
        self, request_id: str, core_id: str, engine_input: EngineInput, kind: RequestOutputKind
    ) -> RequestState:
        """Expect outputs for `core_id`.

        Raises:
            InvalidRequestError: a live request is called `request_id`.
        """
        if request_id in self._by_request_id:
            raise InvalidRequestError(f"request_id {request_id!r} is taken by a request that has not ended yet")
        params = engine_input.params
        tokenizer = self._get_tokenizer() if params.detokenize else None
        detokenizer = None if tokenizer is None else Detokenizer(tokenizer, engine_input.prompt_token_ids, params)
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
        return state

    def process_outputs(self, outputs: Iterable[EngineCoreOutput]) -> Processed:
        """Apply outputs of the engine core. A fault in one request's text ends only that one."""
        now, by_core_id = self._clock.now(), self._by_core_id
        states: list[RequestState] = []
        core_ids_to_abort: list[str] = []
        for output in outputs:
            state = by_core_id.get(output.request_id)
            if state is None:
                continue
            try:
                state.update(output, now)
            except Exception as error:  # a tokenizer is a plugin: if it fails on one text, no other request pays
                state.fail(f"{type(error).__name__}: {error}", now)
            if state.finish_reason is not None:
                self.discard(state)
                if output.finish_reason is None:
                    core_ids_to_abort.append(state.core_id)
            elif state.kind is RequestOutputKind.FINAL_ONLY:
                continue
            states.append(state)
        return Processed(list(dict.fromkeys(states)), core_ids_to_abort)

    def abort_requests(self, request_ids: Iterable[str]) -> Processed:
        """End requests at once, with reason ABORT. Ids of no live request are left alone."""
        states = [self._by_request_id[name] for name in dict.fromkeys(request_ids) if name in self._by_request_id]
        self._finish(states, FinishReason.ABORT)
        return Processed(states, [state.core_id for state in states])

    def fail_requests(self, states: Sequence[RequestState], error: str) -> None:
        """End live requests because the engine core gives nothing more for them."""
        self._finish(states, FinishReason.ERROR, error)

    def discard(self, state: RequestState) -> None:
        """Forget a request: nothing more comes of it here."""
        del self._by_core_id[state.core_id]
        del self._by_request_id[state.request_id]

    def _finish(self, states: Iterable[RequestState], reason: FinishReason, error: str | None = None) -> None:
        now = self._clock.now()
        for state in states:
            self.discard(state)
            try:
                state.finish(reason, now, error)
            except Exception as fault:  # see above
                state.fail(f"{type(fault).__name__}: {fault}", now)


def explain_loss(info: EngineInfo) -> str:
    """The error of requests that the engine core has forgotten."""
    return (
        f"the engine core has nothing left to do, but never ended this request: scheduler "
        f"{info.components['scheduler']!r} has lost it"
    )
