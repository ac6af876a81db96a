"""Offline throughput of the packaged model (or any other) through `LLM`.

    python benchmarks/throughput.py [--model M] [--dtype D] [--repeat N] [WORKLOAD ...]

Prints one line per workload: seconds of each run, and tokens/s of the median. Prefix caching is on for `shared64`
alone, and the cache is reset before each run.
"""

import argparse
import json
import statistics
import time

import workloads

from enginecore import LLM, SamplingParams


def run(llm: LLM, work: workloads.Workload) -> float:
    """Seconds for the whole workload."""
    llm.reset_prefix_cache()
    params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True, detokenize=False) for n in work.output_lens]
    began = time.perf_counter()
    outputs = llm.generate([{"prompt_token_ids": p} for p in work.prompts], params, use_tqdm=False)
    seconds = time.perf_counter() - began
    lengths = [len(output.outputs[0].token_ids) for output in outputs]
    if lengths != work.output_lens:
        raise SystemExit(f"{work.name}: outputs of {lengths} tokens, expected {work.output_lens}")
    return seconds


def measure(name: str, arguments: argparse.Namespace) -> dict[str, object]:
    """Figures of one workload."""
    work = workloads.make(name)
    settings = {"max_model_len": 2048, "max_num_seqs": 64, "max_num_batched_tokens": 2048}
    with LLM(
        arguments.model, dtype=arguments.dtype, enable_prefix_caching=name.startswith("shared"), **settings
    ) as llm:
        run(llm, workloads.Workload("warm-up", work.prompts[:2], [4] * len(work.prompts[:2])))
        seconds = [run(llm, work) for _ in range(arguments.repeat)]
        dtype = llm.info.dtype
    median = statistics.median(seconds)
    return {
        "workload": name,
        "dtype": dtype,
        "seconds": [round(s, 3) for s in seconds],
        "tokens_per_s": round((work.num_prompt_tokens + work.num_output_tokens) / median, 1),
        "output_tokens_per_s": round(work.num_output_tokens / median, 1),
    }


def main() -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", nargs="*", default=["mixed64", "single", "shared64"], metavar="WORKLOAD")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    for name in arguments.workload:
        print(json.dumps(measure(name, arguments)), flush=True)


if __name__ == "__main__":
    main()
