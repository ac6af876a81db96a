"""Transcripts of requests and outputs, checked: one last output each, and the right tokens."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from enginecore.errors import InvariantError
from enginecore.messages import EngineCoreOutput, EngineCoreRequest, FinishReason
from enginecore_conformance.oracle.model import OracleModel


@dataclass(slots=True)
class Story:
    """One request from its client's point of view.

    Attributes:
        request: As it was sent.
        token_ids: Received so far.
        terminal: The last output, once it came.
        aborted: Whether the client closed it.
        num_cached_tokens: As in the first output.
    """

    request: EngineCoreRequest
    token_ids: list[int] = field(default_factory=list)
    terminal: EngineCoreOutput | None = None
    aborted: bool = False
    num_cached_tokens: int = 0

    @property
    def is_open(self) -> bool:
        """Whether more is to come."""
        return self.terminal is None and not self.aborted

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why it ended, once it did."""
        return self.terminal.finish_reason if self.terminal else None


class Transcript:
    """All stories, in order of arrival. An id may be used again once its story is over."""

    def __init__(self) -> None:
        self.stories: list[Story] = []
        self._latest: dict[str, Story] = {}

    def __getitem__(self, request_id: str) -> Story:
        """The latest story of an id."""
        return self._latest[request_id]

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._latest

    @property
    def open_ids(self) -> list[str]:
        """Requests that have not ended."""
        return [request_id for request_id, story in self._latest.items() if story.is_open]

    def begin(self, request: EngineCoreRequest) -> None:
        """Record a request that was accepted."""
        if (before := self._latest.get(request.request_id)) and before.is_open:
            raise InvariantError(f"request {request.request_id!r} was accepted while another of that id is live")
        self._latest[request.request_id] = story = Story(request)
        self.stories.append(story)

    def abort(self, request_ids: Iterable[str]) -> None:
        """Clients aborted these requests: no output may follow."""
        for request_id in request_ids:
            if (story := self._latest.get(request_id)) and story.is_open:
                story.aborted = True

    def record(self, outputs: Iterable[EngineCoreOutput]) -> None:
        """Outputs came.

        Raises:
            InvariantError: for a request that was never accepted, has ended or was aborted, or
                without any news.
        """
        for output in outputs:
            story = self._latest.get(output.request_id)
            if story is None or not story.is_open:
                raise InvariantError(f"an output for {output.request_id!r}, which is not live: {output}")
            if not output.new_token_ids and output.finish_reason is None:
                raise InvariantError(f"an output without news: {output}")
            if not story.token_ids:
                story.num_cached_tokens = output.num_cached_tokens
            story.token_ids += output.new_token_ids
            if output.finish_reason is not None:
                story.terminal = output

    def check(self, model: OracleModel) -> None:
        """Verify every story against the ground truth.

        Raises:
            InvariantError: a token, a reason or a stop reason is not what the model gives.
        """
        for story in self.stories:
            right = model.expected_output_of(story.request)
            name, got = f"request {story.request.request_id!r}", story.token_ids
            if story.finish_reason in (FinishReason.STOP, FinishReason.LENGTH):
                end = story.finish_reason, story.terminal.stop_reason if story.terminal else None
                if got != right.token_ids or end != (right.finish_reason, right.stop_reason):
                    raise InvariantError(f"{name} gave {got}, ended by {end}; right is {right}")
            elif got != right.token_ids[: len(got)]:
                raise InvariantError(f"{name} gave {got}; right is {right.token_ids}")
