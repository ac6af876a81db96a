"""State of one live request in the front end: its input, and its output so far.

Results of a step are taken in at once; an output is made of them when the consumer takes it. A slow
consumer gets fewer and larger outputs: what waits is the request's own text and tokens, never a
queue of outputs.
"""

from collections.abc import Sequence

from enginecore.frontend.detokenizer import Detokenizer
from enginecore.frontend.input_processor import EngineInput
from enginecore.frontend.logprobs_processor import LogprobsProcessor
from enginecore.frontend.outputs import CompletionOutput, RequestMetrics, RequestOutput, RequestOutputKind
from enginecore.messages import EngineCoreOutput, FinishReason


class RequestState:
    """Collects one request's tokens, log-probabilities and text, and makes its outputs.

    Attributes:
        request_id: As the user knows it.
        core_id: As the engine core knows it.
        kind: Contents of the outputs.
        finish_reason: Set once it is over.
    """

    __slots__ = (
        "_detokenizer", "_error", "_input", "_logprobs", "_metrics", "_num_cached_tokens", "_stop_reason", "_text",
        "_token_ids", "core_id", "finish_reason", "kind", "request_id",
    )  # fmt: skip

    def __init__(
        self,
        request_id: str,
        core_id: str,
        engine_input: EngineInput,
        kind: RequestOutputKind,
        *,
        detokenizer: Detokenizer | None,
        logprobs: LogprobsProcessor | None,
        arrival_time: float,
    ) -> None:
        self.request_id = request_id
        self.core_id = core_id
        self.kind = kind
        self.finish_reason: FinishReason | None = None
        self._input = engine_input
        self._detokenizer = detokenizer
        self._logprobs = logprobs
        self._metrics = RequestMetrics(arrival_time)
        self._num_cached_tokens = 0
        self._stop_reason: int | str | None = None
        self._error: str | None = None
        self._token_ids: list[int] = []
        self._text = ""

    def update(self, output: EngineCoreOutput, now: float) -> None:
        """Take in what one step gave; sets `finish_reason` if that, or a stop string, ends the
        request.
        """
        token_ids: Sequence[int] = output.new_token_ids
        metrics = self._metrics
        if output.num_cached_tokens:
            self._num_cached_tokens = output.num_cached_tokens
        if metrics.first_token_time is None and token_ids:
            metrics.first_token_time = now
        if output.finish_reason is not None:
            self._end(output.finish_reason, now, stop_reason=output.stop_reason, error=output.error)
        if self._detokenizer is not None:
            token_ids = self._detokenize(output, self._detokenizer, now)
        self._token_ids += token_ids
        metrics.num_output_tokens += len(token_ids)
        if self._logprobs is not None:
            self._logprobs.append(output.logprobs or [], len(token_ids))

    def finish(self, reason: FinishReason, now: float, error: str | None = None) -> None:
        """End it from this side; text that was held back becomes visible."""
        self._end(reason, now, error=error)
        if self._detokenizer is not None:
            self._detokenizer.finish()

    def fail(self, error: str, now: float) -> None:
        """End it because of a fault in its own text: no more is made of that."""
        self._end(FinishReason.ERROR, now, error=error)

    def make_output(self) -> RequestOutput:
        """The output that is due now: all so far, or, for DELTA, all since the last call."""
        text = "" if self._detokenizer is None else self._detokenizer.take_text()
        token_ids, logprobs, cumulative_logprob = self._token_ids, None, None
        if self.kind is RequestOutputKind.CUMULATIVE:
            self._text = text = self._text + text
            token_ids = token_ids.copy()
        else:
            self._token_ids = []
        if self._logprobs is not None:
            cumulative_logprob = self._logprobs.cumulative
            logprobs = self._logprobs.so_far() if self.kind is RequestOutputKind.CUMULATIVE else self._logprobs.take()
        reason = None if self.finish_reason is None else str(self.finish_reason)
        # by position: once per token, and names would cost more than all the rest
        completion = CompletionOutput(0, text, token_ids, cumulative_logprob, logprobs, reason, self._stop_reason)
        return RequestOutput(
            self.request_id,
            self._input.prompt,
            self._input.prompt_token_ids,
            [completion],
            reason is not None,
            self._num_cached_tokens,
            self._metrics,
            self._error,
        )

    def _detokenize(self, output: EngineCoreOutput, detokenizer: Detokenizer, now: float) -> Sequence[int]:
        """Turn the step's tokens into text, and return those up to the one that completed a stop
        string.
        """
        token_ids = shown = output.new_token_ids
        if output.finish_reason is FinishReason.STOP and not self._input.params.include_stop_str_in_output:
            shown = token_ids[:-1]  # the last one is the stop token: its id is kept, its text is not
        count = detokenizer.append(shown)
        if detokenizer.stop_string is not None:
            token_ids = token_ids[:count]
        elif output.finish_reason is not None:
            detokenizer.finish()
        if detokenizer.stop_string is not None:
            self._end(FinishReason.STOP, now, stop_reason=detokenizer.stop_string)
        return token_ids

    def _end(
        self, reason: FinishReason, now: float, stop_reason: int | str | None = None, error: str | None = None
    ) -> None:
        self.finish_reason, self._stop_reason, self._error = reason, stop_reason, error
        self._metrics.finished_time = now
