"""Milliseconds per step of the executor `single`, without scheduler or front end.

    python benchmarks/executor_steps.py [--dtype bfloat16] [--attention native] [--ops native] [--threads 2]

Prints median and best of a decode of 1 and of 64 requests at 256 tokens, and of a prompt of 1,024 tokens.
"""

import argparse
import statistics
import time

from enginecore.catalog import LoadedCatalog
from enginecore.clock import RealClock
from enginecore.interfaces import Executor, KVCacheConfig
from enginecore.messages import NewRequestData, SchedulerOutput
from enginecore.plugin import ExecutorContext
from enginecore.sampling import SamplingParams
from enginecore.settings import load_settings
from enginecore_torch import make_single
from enginecore_torch.settings import SingleExecutorSettings

BLOCK_SIZE, LONGEST = 16, 1024
BLOCKS = LONGEST // BLOCK_SIZE


def build(args: argparse.Namespace) -> Executor:
    """The executor with room for 64 requests of `LONGEST` tokens."""
    context = ExecutorContext(
        model=args.model,
        dtype=args.dtype,
        device="cpu",
        max_model_len=LONGEST,
        block_size=BLOCK_SIZE,
        max_num_seqs=64,
        max_num_batched_tokens=64 * LONGEST,
        seed=0,
        clock=RealClock(),
        catalog=LoadedCatalog(load_settings({"attention.use": args.attention}, environ={})),
    )
    executor = make_single(SingleExecutorSettings(ops=args.ops, num_threads=args.threads), context)
    executor.initialize_from_config(KVCacheConfig(64 * BLOCKS, BLOCK_SIZE, (tuple(executor.get_kv_cache_specs()),)))
    return executor


def step(executor: Executor, counts: dict[str, int], new: int = 0, length: int = 0, finished: int = 0) -> float:
    """Run one step, with so many new requests of `length` tokens and so many ended ones; returns its milliseconds."""
    requests = [
        NewRequestData(
            request_id=str(number),
            token_ids=[(7 * number + n) % 1000 + 100 for n in range(length)],
            num_prompt_tokens=length,
            params=SamplingParams(temperature=0, seed=0),
            block_ids=(list(range(number * BLOCKS, (number + 1) * BLOCKS)),),
        )
        for number in range(new)
    ]
    plan = SchedulerOutput(
        step=0, num_scheduled_tokens=counts, new_requests=requests, finished_ids=[str(n) for n in range(finished)]
    )
    started = time.perf_counter()
    executor.execute_model(plan).result()
    return 1000 * (time.perf_counter() - started)


def report(name: str, samples: list[float]) -> None:
    """One line of figures."""
    print(f"{name:24} median {statistics.median(samples):8.2f} ms   best {min(samples):8.2f} ms", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--attention", default="auto")
    parser.add_argument("--ops", default="auto")
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    executor = build(args)
    info = executor.model_info
    backend = executor.collective_rpc("attention_backend")[0]
    print(f"{info.name}, {info.dtype}, attention {backend}")
    for running in (1, 64):
        step(executor, {str(n): 256 for n in range(running)}, new=running, length=256)
        report(f"decode of {running} at 256", [step(executor, {str(n): 1 for n in range(running)}) for _ in range(40)])
        step(executor, {}, finished=running)
    prompts = []
    for _ in range(5):
        prompts.append(step(executor, {"0": LONGEST}, new=1, length=LONGEST))
        step(executor, {}, finished=1)
    report(f"prompt of {LONGEST}", prompts)


if __name__ == "__main__":
    main()
