"""Outputs that are due, by client."""

from enginecore.interfaces import Outputs
from enginecore.messages import EngineCoreOutput, FinishReason
from enginecore.request import Request


class Outbox:
    """Collects outputs until they are taken; each is given once."""

    def __init__(self) -> None:
        self._due: dict[int, list[EngineCoreOutput]] = {}

    def __bool__(self) -> bool:
        return bool(self._due)

    def due_to(self, client_index: int) -> list[EngineCoreOutput]:
        """What is due to a client; whoever has many to add adds them here."""
        return self._due.setdefault(client_index, [])

    def add(self, client_index: int, output: EngineCoreOutput) -> None:
        """Put one in."""
        self.due_to(client_index).append(output)

    def add_terminal(self, request: Request, reason: FinishReason, error: str | None = None) -> None:
        """Put in the last output of a request that ends without a token."""
        self.add(request.client_index, EngineCoreOutput(request.request_id, [], reason, error=error))

    def take(self) -> Outputs:
        """All that is due."""
        due, self._due = self._due, {}
        return due
