"""All ranks of a model in one process, each on a thread of its own."""

import queue
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from enginecore_torch.loading import load_runner
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
        self.runners = []
        for rank in range(self.layout.num_ranks):
            stage, place = self.layout.stage_of(rank), rank % tensor
            communicator = ThreadCommunicator(meetings[stage], place, pipes[stage, place], pipes[stage + 1, place])
            self.runners.append(
                load_runner(
                    SingleExecutorSettings(**(settings or {})),
                    made,
                    source,
                    torch.float32,
                    torch.device("cpu"),
                    shard_of(source.config, self.layout, rank),
                    communicator,
                )
            )
        self.pool = ThreadPoolExecutor(self.layout.num_ranks)
        self.told = []
        for runner in self.runners:
            runner.initialize_kv_cache(num_blocks)

    def execute_model(self, plan):
        told, self.told = self.told, []
        running = [self.pool.submit(self._run, runner, told, plan) for runner in self.runners]
        outputs = [future.result(timeout=PATIENCE) for future in running]
        output = outputs[self.layout.output_rank]
        self.told = [(plan.step, [tokens[0] if tokens else 0 for tokens in output.sampled_token_ids])]
        future: Future[Any] = Future()
        future.set_result(output)
        return future

    @staticmethod
    def _run(runner, told, plan):
        for step, token_ids in told:
            runner.learn(step, token_ids)
        return runner.execute(plan)

    def shutdown(self):
        self.pool.shutdown()
