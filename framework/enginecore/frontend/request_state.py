"""One live request as the front end sees it: what came in, what is yet to be said."""

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
        kind: What its outputs hold.
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
        """Take in what one step gave; sets `finish_reason` if that, or a stop string, ends the request."""
        token_ids: Sequence[int] = output.new_token_ids
        if output.num_cached_tokens:
            self._num_cached_tokens = output.num_cached_tokens
        if token_ids and self._metrics.first_token_time is None:
            self._metrics.first_token_time = now
        if output.finish_reason is not None:
            self._end(output.finish_reason, stop_reason=output.stop_reason, error=output.error)
        if self._detokenizer is not None:
            token_ids = self._detokenize(output, self._detokenizer)
        self._token_ids += token_ids
        self._metrics.num_output_tokens += len(token_ids)
        if self._logprobs is not None:
            self._logprobs.append(output.logprobs or [], len(token_ids))

    def finish(self, reason: FinishReason, error: str | None = None) -> None:
        """End it from this side; text that was held back becomes visible."""
        self._end(reason, error=error)
        if self._detokenizer is not None:
            self._detokenizer.finish()

    def fail(self, error: str) -> None:
        """End it because of a fault in its own text: no more is made of that."""
        self._end(FinishReason.ERROR, error=error)

    def make_output(self, now: float) -> RequestOutput:
        """The output that is due now: all so far, or, for DELTA, what is new since the last call."""
        if self.finish_reason is not None:
            self._metrics.finished_time = now
        return RequestOutput(
            request_id=self.request_id,
            prompt=self._input.prompt,
            prompt_token_ids=self._input.prompt_token_ids,
            outputs=[self._make_completion()],
            finished=self.finish_reason is not None,
            num_cached_tokens=self._num_cached_tokens,
            metrics=self._metrics,
            error=self._error,
        )

    def _make_completion(self) -> CompletionOutput:
        text = "" if self._detokenizer is None else self._detokenizer.take_text()
        token_ids = self._token_ids
        if self.kind is RequestOutputKind.CUMULATIVE:
            self._text = text = self._text + text
            token_ids = list(token_ids)
            logprobs = None if self._logprobs is None else self._logprobs.so_far()
        else:
            self._token_ids = []
            logprobs = None if self._logprobs is None else self._logprobs.take()
        return CompletionOutput(
            index=0,
            text=text,
            token_ids=token_ids,
            cumulative_logprob=None if self._logprobs is None else self._logprobs.cumulative,
            logprobs=logprobs,
            finish_reason=None if self.finish_reason is None else str(self.finish_reason),
            stop_reason=self._stop_reason,
        )

    def _detokenize(self, output: EngineCoreOutput, detokenizer: Detokenizer) -> Sequence[int]:
        """Turn the step's tokens into text, and return those up to the one that completed a stop string."""
        token_ids = shown = output.new_token_ids
        if output.finish_reason is FinishReason.STOP and not self._input.params.include_stop_str_in_output:
            shown = token_ids[:-1]  # the last one is the stop token: its id is kept, its text is not
        count = detokenizer.append(shown)
        if detokenizer.stop_string is not None:
            token_ids = token_ids[:count]
        elif output.finish_reason is not None:
            detokenizer.finish()
        if detokenizer.stop_string is not None:
            self._end(FinishReason.STOP, stop_reason=detokenizer.stop_string)
        return token_ids

    def _end(self, reason: FinishReason, stop_reason: int | str | None = None, error: str | None = None) -> None:
        self.finish_reason, self._stop_reason, self._error = reason, stop_reason, error
