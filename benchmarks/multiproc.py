"""What several processes cost: the executor `multiproc` beside `single`.

    python benchmarks/multiproc.py [--model M] [--dtype D] [--tokens N] [--skip-model]

1. Microseconds per step of a model that does next to nothing: one step at a time, and two in flight.
2. Milliseconds per step where a step takes 10 ms in the worker and its scheduling 2 ms: one in flight, and two.
   The same with stages of 10 ms each, without and with the batch queue. 10 ms is the ideal.
3. Seconds from the call to an executor that is ready, and MiB of every rank: resident, and its own.
4. Tokens/s of a real model. On a machine with as many cores as ranks, or fewer, this shows what sharing costs, not what
   it gains: the ranks take the cores from one another, and `single` had them all.
"""

import argparse
import itertools
import os
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import sleeping_worker
import torch

from enginecore import LLM, SamplingParams
from enginecore.catalog import LoadedCatalog
from enginecore.clock import RealClock
from enginecore.interfaces import Executor, KVCacheConfig
from enginecore.messages import NewRequestData, SchedulerOutput
from enginecore.plugin import ExecutorContext
from enginecore.settings import load_settings
from enginecore_models.checkpoint import write_safetensors
from enginecore_torch import make_multiproc, make_single
from enginecore_torch.multiproc.executor import MultiprocExecutor
from enginecore_torch.settings import MultiprocExecutorSettings, SingleExecutorSettings

BLOCK_SIZE, LONGEST, STEPS = 16, 1024, 200
LAYOUTS = ((1, 1), (2, 1), (1, 2))


def write_tiny_model(folder: Path, num_layers: int = 2) -> None:
    """A few layers, 16 wide."""
    hidden, inner, vocab = 16, 32, 64
    config = {
        "architectures": ["LlamaForCausalLM"], "hidden_size": hidden, "intermediate_size": inner,
        "num_hidden_layers": num_layers, "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": vocab,
        "max_position_embeddings": LONGEST, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": True,
    }  # fmt: skip
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,)}
    for layer in [f"model.layers.{number}" for number in range(num_layers)]:
        shapes |= {f"{layer}.self_attn.{name}_proj.weight": (hidden, hidden) for name in "qkvo"}
        shapes |= {f"{layer}.mlp.{name}_proj.weight": (inner, hidden) for name in ("gate", "up")}
        shapes |= {f"{layer}.mlp.down_proj.weight": (hidden, inner)}
        shapes |= {f"{layer}.{name}_layernorm.weight": (hidden,) for name in ("input", "post_attention")}
    (folder / "config.json").write_bytes(msgspec.json.encode(config))
    weights = ((name, torch.randn(shape)) for name, shape in shapes.items())
    write_safetensors(folder / "model.safetensors", torch.float32, shapes, weights)


def context_of(model: str, **changes: object) -> ExecutorContext:
    """What an executor is told."""
    fields = {
        "model": model, "dtype": "float32", "device": "cpu", "max_model_len": LONGEST, "block_size": BLOCK_SIZE,
        "max_num_seqs": 64, "max_num_batched_tokens": 2048, "seed": 0, "clock": RealClock(),
        "catalog": LoadedCatalog(load_settings({}, environ={})), **changes,
    }  # fmt: skip
    return ExecutorContext(**fields)  # type: ignore[arg-type]


def start(model: str, layout: tuple[int, int] | None, **context: object) -> Executor:
    """`single`, or `multiproc` with so many ranks per stage and so many stages."""
    made = context_of(model, **context)
    if layout is None:
        return make_single(SingleExecutorSettings(num_threads=1), made)
    tensor, pipeline = layout
    settings = MultiprocExecutorSettings(
        tensor_parallel_size=tensor, pipeline_parallel_size=pipeline, overlap="on", num_threads=1
    )
    return make_multiproc(settings, made)


def name_of(layout: tuple[int, int] | None) -> str:
    """For the lines that are printed."""
    return "single" if layout is None else f"multiproc TP {layout[0]} PP {layout[1]}"


def plans(running: int) -> Iterator[SchedulerOutput]:
    """Two groups of requests that decode in turns, so that steps need not wait for one another."""
    per_request = LONGEST // BLOCK_SIZE
    groups = [[f"{group}-{number}" for number in range(running)] for group in range(2)]
    requests = [
        NewRequestData(
            request_id=name,
            token_ids=[1, 2, 3],
            num_prompt_tokens=3,
            params=SamplingParams(temperature=0, seed=0),
            block_ids=(list(range(number * per_request, (number + 1) * per_request)),),
        )
        for number, name in enumerate(groups[0] + groups[1])
    ]
    known = {request.request_id: request for request in requests}
    for step in range(STEPS):
        group = groups[step % 2]
        new = [known[name] for name in group] if step < 2 else []
        yield SchedulerOutput(step=step, num_scheduled_tokens=dict.fromkeys(group, 3 if new else 1), new_requests=new)
    yield SchedulerOutput(step=STEPS, finished_ids=groups[0] + groups[1])


def microseconds_per_step(executor: Executor, running: int, depth: int, scheduling: float = 0.0) -> float:
    """Of the steps after the first tenth; making each plan keeps this process busy for so many seconds."""
    in_flight: deque[Callable[[], object]] = deque()
    times = []
    for plan in plans(running):
        until = time.perf_counter() + scheduling
        while time.perf_counter() < until:
            pass
        in_flight.append(executor.execute_model(plan).result)
        if len(in_flight) == depth:
            in_flight.popleft()()
        times.append(time.perf_counter())
    while in_flight:
        in_flight.popleft()()
    gaps = [1e6 * (after - before) for before, after in itertools.pairwise(times)]
    return statistics.median(gaps[STEPS // 10 : -1])


def report_overhead() -> None:
    """Part 1."""
    with tempfile.TemporaryDirectory() as folder:
        write_tiny_model(Path(folder))
        for layout in (None, *LAYOUTS):
            executor = start(folder, layout)
            names = tuple(executor.get_kv_cache_specs())
            executor.initialize_from_config(KVCacheConfig(64 * LONGEST // BLOCK_SIZE, BLOCK_SIZE, (names,)))
            figures = [
                f"{running} requests, {depth} in flight: {microseconds_per_step(executor, running, depth):6.0f} us"
                for running in (1, 32)
                for depth in (1, executor.capabilities.max_concurrent_batches)[: 1 if layout is None else 2]
            ]
            print(f"{name_of(layout):22} per step: {';  '.join(figures)}", flush=True)
            executor.shutdown()


def report_overlap() -> None:
    """Part 2."""
    with tempfile.TemporaryDirectory() as folder:
        write_tiny_model(Path(folder), num_layers=4)
        context = context_of(folder)
        for stages, overlap in itertools.product((1, 2, 4), ("off", "on")):
            settings = MultiprocExecutorSettings(pipeline_parallel_size=stages, overlap=overlap, num_threads=1)
            executor = MultiprocExecutor(settings, context, worker="sleeping_worker:main")
            depth = executor.capabilities.max_concurrent_batches
            scheduling = 0.002 if stages == 1 else 0.0
            milliseconds = microseconds_per_step(executor, 32, depth, scheduling) / 1000
            print(
                f"{stages} stages of {1000 * sleeping_worker.SECONDS:.0f} ms, scheduling {1000 * scheduling:.0f} ms, "
                f"{depth} in flight: {milliseconds:.2f} ms per step, "
                f"{1000 * sleeping_worker.SECONDS / milliseconds:.2f} of the ideal throughput",
                flush=True,
            )
            executor.shutdown()


def report_start(arguments: argparse.Namespace) -> None:
    """Part 3."""
    for layout in (*LAYOUTS, (2, 2)):
        began = time.perf_counter()
        executor = start(arguments.model, layout, dtype=arguments.dtype)
        seconds = time.perf_counter() - began
        names = tuple(executor.get_kv_cache_specs())
        executor.initialize_from_config(KVCacheConfig(64, BLOCK_SIZE, (names,)))
        usage = executor.collective_rpc("memory_usage")
        shown = ", ".join(f"{u['resident'] >> 20} ({u['private'] >> 20})" for u in usage)
        print(f"{name_of(layout):22} ready after {seconds:5.2f} s; MiB resident (own) by rank: {shown}", flush=True)
        executor.shutdown()


def report_throughput(arguments: argparse.Namespace) -> None:
    """Part 4."""
    prompts = [[(7 * n + k) % 1000 + 100 for k in range(64)] for n in range(16)]
    params = SamplingParams(temperature=0, max_tokens=arguments.tokens, ignore_eos=True, detokenize=False)
    choices: list[dict[str, object]] = [{"use": "single"}]
    for tensor, pipeline in LAYOUTS:
        sizes = {"tensor_parallel_size": tensor, "pipeline_parallel_size": pipeline}
        choices += [{"use": "multiproc", "multiproc": {**sizes, "overlap": overlap}} for overlap in ("on", "off")]
    for executor in choices:
        settings = {"max_model_len": 256, "max_num_seqs": 16, "enable_prefix_caching": False, "num_kv_blocks": 256}
        with LLM(arguments.model, dtype=arguments.dtype, executor=executor, **settings) as llm:
            llm.generate(prompts[:2], SamplingParams(max_tokens=4), use_tqdm=False)
            began = time.perf_counter()
            llm.generate(prompts, params, use_tqdm=False)
            rate = len(prompts) * arguments.tokens / (time.perf_counter() - began)
            depth = llm.info.max_concurrent_batches
        chosen = executor.get("multiproc", {})
        print(f"{rate:7.1f} output tokens/s, {depth} in flight: {executor['use']} {chosen or ''}", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--tokens", type=int, default=64, help="output tokens of each of the 16 requests of part 4")
    parser.add_argument("--skip-model", action="store_true", help="parts 1 and 2 only")
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} CPUs", flush=True)
    report_overhead()
    report_overlap()
    if not arguments.skip_model:
        report_start(arguments)
        report_throughput(arguments)


if __name__ == "__main__":
    main()
