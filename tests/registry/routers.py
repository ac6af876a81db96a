"""Interface and context of the kind `router`, which plugins of tests declare and fill."""

from abc import ABC, abstractmethod
from dataclasses import dataclass


class Router(ABC):
    """Says which engine takes a request."""

    @abstractmethod
    def route(self, request_id: str) -> int: ...


@dataclass(frozen=True)
class RouterContext:
    num_engines: int
