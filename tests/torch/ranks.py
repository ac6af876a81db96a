"""All ranks of a model in one process, each on a thread of its own."""

import queue
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from enginecore_torch.model_rank import ModelRank
from enginecore_torch.parallel.layout import Layout, shard_of
from enginecore_torch.settings import SingleExecutorSettings
from tests.torch.tiny import make_context

PATIENCE = 60.0  # seconds for the slowest rank


class Meeting:
    """Where the ranks of one stage leave tensors for one another."""

    def __init__(self, size):
        self.barrier = threading.Barrier(size, timeout=PATIENCE)
        self.left = [torch.empty(0)] * size


class ThreadCommunicator:
    """One rank's end; fills `Communicator`."""

    def __init__(self, meeting, place, incoming, outgoing):
        self.meeting, self.place, self.incoming, self.outgoing = meeting, place, incoming, outgoing

    def _exchange(self, x):
        """What every rank of the stage has brought."""
        self.meeting.left[self.place] = x.clone()
        self.meeting.barrier.wait()
        every = list(self.meeting.left)
        self.meeting.barrier.wait()
        return every

    def all_reduce(self, x):
        x.copy_(torch.stack(self._exchange(x)).sum(0))

    def gather(self, x, widths):
        assert x.shape[1] == widths[self.place]
        every = self._exchange(x)
        return torch.cat(every, dim=1) if self.place == 0 else None

    def broadcast(self, x):
        x.copy_(self._exchange(x)[0])

    def send(self, x):
        self.outgoing.put(x.clone())

    def receive(self, x):
        x.copy_(self.incoming.get(timeout=PATIENCE))


class Ranks:
    """Runs plans on all ranks; as much of an executor as `Driver` needs."""

    def __init__(self, source, tensor, pipeline, *, num_blocks=64, settings=None, **context):
        self.layout = Layout(tensor, pipeline)
        self.layout.check(source.config)
        meetings = [Meeting(tensor) for _ in range(pipeline)]
        pipes: dict[tuple[int, int], queue.Queue[torch.Tensor]] = {
            (stage, place): queue.Queue() for stage in range(pipeline + 1) for place in range(tensor)
        }
        made = make_context(**context)
        self.ranks = []
        for number in range(self.layout.num_ranks):
            stage, place = self.layout.stage_of(number), number % tensor
            communicator = ThreadCommunicator(meetings[stage], place, pipes[stage, place], pipes[stage + 1, place])
            self.ranks.append(
                ModelRank.load(
                    SingleExecutorSettings(**(settings or {})),
                    made,
                    source,
                    torch.float32,
                    torch.device("cpu"),
                    shard_of(source.config, self.layout, number),
                    communicator,
                )
            )
        self.pool = ThreadPoolExecutor(self.layout.num_ranks)
        self.sampled = []
        list(self.pool.map(lambda rank: rank.initialize_kv_cache(num_blocks), self.ranks))  # they run a token together

    def execute_model(self, plan):
        sampled, self.sampled = self.sampled, []
        return self._on_all(plan.step, lambda rank: self._execute(rank, sampled, plan))

    def sample_tokens(self, step, grammar):
        return self._on_all(step, lambda rank: rank.sample_tokens(step))

    def _on_all(self, step, run):
        running = [self.pool.submit(run, rank) for rank in self.ranks]
        outputs = [future.result(timeout=PATIENCE) for future in running]
        output = outputs[self.layout.output_rank]
        if output is not None:
            self.sampled.append((step, [tokens[0] if tokens else 0 for tokens in output.sampled_token_ids]))
        future: Future[Any] = Future()
        future.set_result(output)
        return future

    @staticmethod
    def _execute(rank, sampled, plan):
        for step, token_ids in sampled:
            rank.fill_tokens(step, token_ids)
        return rank.execute_model(plan)

    def shutdown(self):
        self.pool.shutdown()
