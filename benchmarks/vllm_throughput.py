"""The workloads of throughput.py through vLLM, in vLLM's own interpreter. Called by against_vllm.py.

VLLM_VENV/bin/python benchmarks/vllm_throughput.py WORKLOAD --model FOLDER --dtype D --repeat N
"""

import argparse
import json
import statistics
import time

import workloads


def main() -> None:
    """Print one line of JSON: seconds of each run, and seconds from start to ready."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload")
    parser.add_argument("--model", required=True)
    parser.add_argument("--dtype", required=True)
    parser.add_argument("--repeat", type=int, required=True)
    arguments = parser.parse_args()
    work = workloads.make(arguments.workload)

    from vllm import LLM, SamplingParams  # type: ignore[import-not-found]

    began = time.perf_counter()
    llm = LLM(
        arguments.model,
        dtype=arguments.dtype,
        max_model_len=2048,
        max_num_seqs=64,
        max_num_batched_tokens=2048,
        enable_prefix_caching=arguments.workload.startswith("shared"),
    )
    ready = time.perf_counter() - began
    params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True, detokenize=False) for n in work.output_lens]
    prompts = [{"prompt_token_ids": prompt} for prompt in work.prompts]
    llm.generate(prompts[:2], SamplingParams(temperature=0, max_tokens=4, ignore_eos=True), use_tqdm=False)
    seconds = []
    for _ in range(arguments.repeat):
        llm.reset_prefix_cache()
        began = time.perf_counter()
        outputs = llm.generate(prompts, params, use_tqdm=False)
        seconds.append(time.perf_counter() - began)
        if [len(output.outputs[0].token_ids) for output in outputs] != work.output_lens:
            raise SystemExit("vLLM gave outputs of other lengths than asked")
    print(json.dumps({"seconds": seconds, "median": statistics.median(seconds), "ready": ready}), flush=True)


if __name__ == "__main__":
    main()
