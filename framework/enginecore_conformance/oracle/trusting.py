"""A worker for benchmarks: the oracle's tokens, made without reading any block."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from enginecore.messages import NewRequestData, SchedulerOutput
from enginecore_conformance.oracle.memory import SlotMemory
from enginecore_conformance.oracle.model import DIGEST_BYTES, OracleModel, extend_digest, extend_digests, root_digest
from enginecore_conformance.oracle.worker import OracleRow, OracleWorker


@dataclass(slots=True)
class PrefixDigest:
    """Digest that a request's slots would hold, were they written.

    Attributes:
        last: Digest of the last one.
        checksum: Checksum of all slots.
    """

    last: int
    checksum: int

    @classmethod
    def of(cls, new: NewRequestData) -> "PrefixDigest":
        """The digest of the tokens that a new request has in the KV cache already."""
        root = root_digest(new.cache_salt, new.adapter)
        digests = extend_digests(root, new.token_ids[: new.num_computed_tokens])
        return cls(digests[-1] if digests else root, zlib.crc32(digests))

    def extend(self, token_ids: Sequence[int]) -> None:
        """Compute tokens."""
        last, checksum = self.last, self.checksum
        for token in token_ids:
            last = extend_digest(last, token)
            checksum = zlib.crc32(last.to_bytes(DIGEST_BYTES, "little", signed=True), checksum)
        self.last, self.checksum = last, checksum


class TrustingWorker(OracleWorker):
    """Remembers each request's progress instead of reading it back: a wrong block is not seen by
    it.
    """

    def __init__(self, model: OracleModel, memory: SlotMemory, *, feeds_tokens: bool) -> None:
        super().__init__(model, memory, feeds_tokens=feeds_tokens)
        self._progress: dict[str, PrefixDigest] = {}

    def apply(self, plan: SchedulerOutput) -> None:
        super().apply(plan)
        for request_id in (*plan.finished_ids, *plan.preempted_ids):
            self._progress.pop(request_id, None)
        for new in plan.new_requests:
            self._progress[new.request_id] = PrefixDigest.of(new)

    def _compute(self, request_id: str, row: OracleRow, end: int) -> None:
        self._progress[request_id].extend(row.token_ids[row.num_computed_tokens : end])

    def _checksum(self, request_id: str, row: OracleRow) -> int:
        return self._progress[request_id].checksum
