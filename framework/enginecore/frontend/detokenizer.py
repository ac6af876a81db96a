"""Incremental detokenisation of one request: tokens in, text out that is never taken back."""

from collections.abc import Sequence

from enginecore.errors import PluginError
from enginecore.frontend.stop_strings import StopStringMatcher
from enginecore.interfaces import Tokenizer
from enginecore.sampling import SamplingParams


def check_text(text: object) -> None:
    """Raise PluginError if a tokenizer gave something else than text."""
    if not isinstance(text, str):
        raise PluginError(f"the tokenizer must give a string, and gave {text!r:.100}")


class Detokenizer:
    """Text of one completion as it grows, up to its stop string.

    Text is held back only while it may turn out to begin a stop string, and never ends within a
    character. A character that is still open when the completion ends becomes U+FFFD, once. A stop
    string counts only if it is completed by a token after the first `min_tokens`.

    Attributes:
        stop_string: The stop string that ended the text, once one did.
    """

    __slots__ = (
        "_held", "_include_stop", "_matcher", "_min_tokens", "_num_tokens", "_open_ids", "_released",
        "_skip_special_tokens", "_stream", "_tokenizer", "stop_string",
    )  # fmt: skip

    def __init__(self, tokenizer: Tokenizer, prompt_token_ids: Sequence[int], params: SamplingParams) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = params.skip_special_tokens
        self._stream = tokenizer.decode_stream(prompt_token_ids, skip_special_tokens=self._skip_special_tokens)
        self._include_stop = params.include_stop_str_in_output
        self._matcher = StopStringMatcher(params.stop) if params.stop else None
        self._min_tokens = params.min_tokens
        self._num_tokens = 0
        self._open_ids: list[int] = []  # tokens that gave no text yet
        self._held = ""
        self._released: list[str] = []
        self.stop_string: str | None = None

    def append(self, token_ids: Sequence[int]) -> int:
        """Add tokens up to the one that completes a stop string, and return how many were added.

        Raises:
            PluginError: the tokenizer gave something else than text.
        """
        if self._matcher is not None:
            return self._append_up_to_stop(token_ids, self._matcher)
        step, open_ids = self._stream.step, self._open_ids
        for token_id in token_ids:  # most requests, each of their tokens
            text = step(token_id)
            if not text:
                open_ids.append(token_id)
                continue
            if type(text) is not str:
                check_text(text)
            self._released.append(text)
            if open_ids:
                open_ids.clear()
        return len(token_ids)

    def _append_up_to_stop(self, token_ids: Sequence[int], matcher: StopStringMatcher) -> int:
        for count, token_id in enumerate(token_ids, 1):
            self._num_tokens += 1
            text = self._stream.step(token_id)
            if not text:
                self._open_ids.append(token_id)
                continue
            check_text(text)
            self._open_ids.clear()
            self._scan(text, matcher)
            if self.stop_string is not None:
                return count
        return len(token_ids)

    def finish(self) -> None:
        """No more tokens come: release what was held back, and what is left of an open character.

        Raises:
            PluginError: the tokenizer gave something else than text.
        """
        if self.stop_string is not None:
            return
        if self._open_ids:
            tail = self._tokenizer.decode(self._open_ids, skip_special_tokens=self._skip_special_tokens)
            check_text(tail)
            self._open_ids.clear()
            if self._matcher is None:
                self._released.append(tail)
            else:
                self._scan(tail, self._matcher)
        self._released.append(self._held)
        self._held = ""

    def take_text(self) -> str:
        """The text released since this was last called."""
        text = "".join(self._released)
        self._released = []
        return text

    def _scan(self, text: str, matcher: StopStringMatcher) -> None:
        """Release what cannot begin a stop string; set `stop_string` if one is completed."""
        scan = matcher.pass_over if self._num_tokens <= self._min_tokens else matcher.find
        known = self._held + text
        held, end, self.stop_string = scan(self._held, text)
        if self.stop_string is not None:
            known = known[: len(self._held) + end]
            held_back = 0 if self._include_stop else len(self.stop_string)
        else:
            held_back = len(held)
        self._held = held
        self._released.append(known[: len(known) - held_back])
