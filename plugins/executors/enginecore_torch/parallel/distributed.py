"""Ranks that talk through torch.distributed: gloo on the CPU, nccl on CUDA."""

import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from enginecore_torch.parallel.layout import Layout

RENDEZVOUS_FILE = "rendezvous"
_PREPARED = "prepared"


class TorchCommunicator:
    """The `Communicator` of one rank, one per process."""

    def __init__(self, layout: Layout, rank: int, device: torch.device, directory: Path, timeout: float) -> None:
        """Meet the other ranks.

        Args:
            layout: The division of the model.
            rank: This one.
            device: Where its tensors are.
            directory: Private to this engine: ranks find one another through a file there, and talk
                on the loopback interface only.
            timeout: Seconds after which a rank gives up waiting for another.
        """
        self._layout, self._rank = layout, rank
        self._ranks = layout.ranks_of(layout.stage_of(rank))
        os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
        self._store = distributed.FileStore(  # type: ignore[attr-defined]
            str(directory / RENDEZVOUS_FILE), layout.num_ranks
        )
        patience = timedelta(seconds=timeout)
        distributed.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            store=self._store,
            rank=rank,
            world_size=layout.num_ranks,
            timeout=patience,
        )
        stages = [list(layout.ranks_of(stage)) for stage in range(layout.pipeline)]
        # every rank makes all groups
        groups = [distributed.new_group(ranks, timeout=patience) for ranks in stages]
        self._stage: Any = groups[layout.stage_of(rank)]
        self._patience = patience
        self._sent: tuple[distributed.Work | None, torch.Tensor] | None = None

    def say_prepared(self) -> None:
        """The first rank has done what the others wait for in `await_prepared`."""
        self._store.set(_PREPARED, "1")

    def await_prepared(self) -> None:
        """Wait for `say_prepared`."""
        self._store.wait([_PREPARED], self._patience)

    def all_reduce(self, x: torch.Tensor) -> None:
        if x.numel():
            distributed.all_reduce(x, group=self._stage)

    def gather(self, x: torch.Tensor, widths: Sequence[int]) -> torch.Tensor | None:
        first = self._ranks.start
        if self._rank != first:
            distributed.send(x.contiguous(), first)
            return None
        parts = [x, *(x.new_empty((len(x), width)) for width in widths[1:])]
        for rank, part in zip(self._ranks[1:], parts[1:], strict=True):
            distributed.recv(part, rank)
        return torch.cat(parts, dim=1)

    def broadcast(self, x: torch.Tensor) -> None:
        distributed.broadcast(x, self._ranks.start, group=self._stage)

    def send(self, x: torch.Tensor) -> None:
        """Start sending and return; waits only for the tensor that was sent before."""
        if self._sent is not None and (work := self._sent[0]) is not None:
            work.wait()
        # the tensor must live until it has arrived
        self._sent = distributed.isend(x, self._rank + self._layout.tensor), x

    def receive(self, x: torch.Tensor) -> None:
        distributed.recv(x, self._rank - self._layout.tensor)
