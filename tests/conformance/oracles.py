"""An oracle executor without an engine, and plans for it by hand."""

from enginecore.clock import VirtualClock
from enginecore.interfaces import KVCacheConfig
from enginecore.messages import NewRequestData, RequestDelta, SchedulerOutput
from enginecore.plugin import ExecutorContext
from enginecore.sampling import SamplingParams
from enginecore_conformance.oracle.executor import OracleExecutor
from enginecore_conformance.oracle.model import OracleModel
from enginecore_conformance.oracle.settings import OracleSettings

BLOCK_SIZE = 4
PARAMS = SamplingParams(temperature=0, max_tokens=100, ignore_eos=True)
PROMPT = [11, 12, 13, 14, 15, 16]
MODEL = OracleModel(vocab_size=256, eos_token_ids=(0,), max_model_len=64)


def make_oracle(*, num_blocks=16, clock=None, **settings):
    context = ExecutorContext(
        model="oracle", dtype="auto", device="auto", max_model_len=64, block_size=BLOCK_SIZE, max_num_seqs=4,
        max_num_batched_tokens=32, seed=0, clock=clock or VirtualClock(),
    )  # fmt: skip
    oracle = OracleExecutor(OracleSettings(**settings), context)
    oracle.initialize_from_config(KVCacheConfig(num_blocks, BLOCK_SIZE, (("layers.0",),)))
    return Bench(oracle, context.clock)


class Bench:
    """Submits plans to an oracle and waits for them."""

    def __init__(self, oracle, clock):
        self.oracle = oracle
        self.clock = clock
        self.step = 0

    def submit(self, scheduled, *, new=(), deltas=(), finished=(), preempted=()):
        plan = SchedulerOutput(
            step=self.step, num_scheduled_tokens=scheduled, new_requests=list(new), deltas=list(deltas),
            finished_ids=list(finished), preempted_ids=list(preempted),
        )  # fmt: skip
        self.step += 1
        return self.oracle.execute_model(plan)

    def result(self, future):
        assert self.clock.wait(future)
        return future.result()

    def run(self, scheduled, **changes):
        """One step; the sampled tokens by request."""
        output = self.result(self.submit(scheduled, **changes))
        return dict(zip(output.request_ids, output.sampled_token_ids, strict=True))


def new(request_id="a", *, tokens=PROMPT, blocks=(0, 1), computed=0, num_prompt=None, params=PARAMS, salt=None):
    return NewRequestData(
        request_id=request_id, token_ids=list(tokens), num_prompt_tokens=num_prompt or len(tokens), params=params,
        block_ids=(list(blocks),), num_computed_tokens=computed, cache_salt=salt,
    )  # fmt: skip


def delta(request_id="a", *, blocks=(), computed):
    return RequestDelta(request_id=request_id, new_block_ids=(list(blocks),), num_computed_tokens=computed)
