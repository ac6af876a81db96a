"""Submission of requests to the engine core: registered, numbered and sent, or not at all."""

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress

from enginecore.errors import EngineCoreError
from enginecore.frontend.input_processor import EngineInput, derive_seed
from enginecore.frontend.output_processor import OutputProcessor
from enginecore.frontend.outputs import RequestOutputKind
from enginecore.frontend.request_state import RequestState
from enginecore.interfaces import AsyncEngineCoreClient, EngineCoreClient


class Intake:
    """Gives each request an id that the engine core never saw before, and a seed by its number."""

    def __init__(
        self,
        client: EngineCoreClient | AsyncEngineCoreClient,
        output_processor: OutputProcessor,
        *,
        while_sending: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """`while_sending` makes what is entered while a request is sent; what it raises counts as a
        refusal.
        """
        self._while_sending = while_sending
        self._client = client
        self._output_processor = output_processor
        self._serial = itertools.count()
        self._num_accepted = 0

    def submit_request(self, request_id: str, engine_input: EngineInput, kind: RequestOutputKind) -> RequestState:
        """Expect outputs of a request, and send it.

        Raises:
            InvalidRequestError: a live request has this id, or the engine core refuses it; nothing
                has changed.
            EngineDeadError: the engine core has failed.
        """
        core_id = f"{request_id}-{self._client.client_index}-{next(self._serial)}"
        request = engine_input.to_request(core_id, derive_seed(self._client.info.seed, self._num_accepted))
        state = self._output_processor.add_request(request_id, core_id, engine_input, kind)
        try:
            with self._while_sending():
                self._client.add_request(request)
        except BaseException:
            self._output_processor.discard(state)
            with suppress(EngineCoreError):  # an interrupt may have come after the engine core took it
                self._client.abort_requests([core_id])
            raise
        self._num_accepted += 1
        return state
