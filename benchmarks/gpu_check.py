"""Run by gpu_check.sh: the executors on CUDA beside `single` on the CPU, and their speed.

Greedy tokens in float32 are compared. Sums are rounded in another order on another device, so tokens may part where the
two likeliest are nearly as likely; anywhere else a difference is a fault.
"""

import argparse
import sys
import time
from typing import Any

import torch

from enginecore import LLM, SamplingParams

NEAR_TIE = 1e-3
"""Log-probability by which the likeliest token must lead for it to count."""
TEXTS = [
    "The capital of France is",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "Once upon a time, in a small village by the sea, there lived a fisherman who",
    "In 1905 Albert Einstein published four papers. The first of them " * 6,
]
SETTINGS: dict[str, Any] = {"max_model_len": 512, "max_num_seqs": 64, "kv_cache_memory": "2GiB"}


def executors(num_devices: int) -> list[dict[str, Any]]:
    """What can run on so many devices."""

    def multiproc(tensor: int, pipeline: int) -> dict[str, Any]:
        sizes = {"tensor_parallel_size": tensor, "pipeline_parallel_size": pipeline}
        return {"use": "multiproc", "multiproc": sizes}

    shared_out = [multiproc(2, 1), multiproc(1, 2)] if num_devices >= 2 else []
    if num_devices >= 4:
        shared_out.append(multiproc(2, 2))
    return [{"use": "single"}, multiproc(1, 1), *shared_out]


def generate(model: str, device: str, executor: dict[str, Any]) -> list[list[tuple[int, float]]]:
    """Each token, and by how much it leads the next likeliest."""
    params = SamplingParams(temperature=0, max_tokens=48, ignore_eos=True, logprobs=2)
    with LLM(model, device=device, dtype="float32", executor=executor, **SETTINGS) as llm:
        outputs = llm.generate(TEXTS * 2, params, use_tqdm=False)
    found = []
    for output in outputs:
        completion = output.outputs[0]
        leads = []
        for token, position in zip(completion.token_ids, completion.logprobs or [], strict=True):
            best = sorted((entry.logprob for entry in position.values()), reverse=True)
            leads.append((token, best[0] - best[1] if len(best) > 1 else float("inf")))
        found.append(leads)
    return found


def compare(expected: list[list[tuple[int, float]]], found: list[list[tuple[int, float]]]) -> int:
    """How many tokens were checked.

    Raises:
        SystemExit: one is wrong.
    """
    checked = 0
    for number, (theirs, mine) in enumerate(zip(expected, found, strict=True)):
        for place, ((right, lead), (token, _)) in enumerate(zip(theirs, mine, strict=True)):
            if token != right:
                if lead > NEAR_TIE:
                    raise SystemExit(
                        f"WRONG: token {place} of prompt {number} is {token}, on the CPU {right}, which leads by {lead}"
                    )
                break  # what follows has another context
            checked += 1
    return checked


def tokens_per_second(model: str, executor: dict[str, Any], running: int) -> float:
    """Output tokens per second in bfloat16, of so many requests of 128 prompt tokens."""
    params = SamplingParams(temperature=0, max_tokens=128, ignore_eos=True, detokenize=False)
    prompts = [[(7 * n + k) % 1000 + 100 for k in range(128)] for n in range(running)]
    with LLM(model, device="cuda", dtype="bfloat16", executor=executor, enable_prefix_caching=False, **SETTINGS) as llm:
        llm.generate(prompts, SamplingParams(max_tokens=8, ignore_eos=True, detokenize=False), use_tqdm=False)
        began = time.perf_counter()
        llm.generate(prompts, params, use_tqdm=False)
        return 128 * running / (time.perf_counter() - began)


def main() -> None:
    """Check, then measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2-135m")
    model = parser.parse_args().model
    if not torch.cuda.is_available():
        raise SystemExit(f"torch {torch.__version__} sees no CUDA device: nothing can be checked here")
    count = torch.cuda.device_count()
    print(f"torch {torch.__version__}, {count} x {torch.cuda.get_device_name()}, {model}", flush=True)
    expected = generate(model, "cpu", {"use": "single"})
    for executor in executors(count):
        checked = compare(expected, generate(model, "cuda", executor))
        print(f"right: {checked} of {sum(map(len, expected))} tokens compared, float32, {executor}", flush=True)
    for executor in executors(count):
        for running in (1, 64):
            rate = tokens_per_second(model, executor, running)
            print(f"{rate:9.1f} output tokens/s, bfloat16, {running:2} requests, {executor}", flush=True)
    if count < 2:
        print("one device only: tensor and pipeline parallel over nccl were not checked", flush=True)


if __name__ == "__main__":
    sys.exit(main())
