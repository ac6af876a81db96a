"""Start-up: `import enginecore`, and from a new process to the first token of the packaged model, cold and warm.

    python benchmarks/startup.py [--repeat N]

Cold: nothing converted yet (an empty ENGINECORE_CACHE). Warm: the converted copy is there. Both in a fresh process.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

FIRST_TOKEN = """
from enginecore import LLM, SamplingParams
with LLM("smollm2-135m") as llm:
    llm.generate("Hello", SamplingParams(max_tokens=1, temperature=0), use_tqdm=False)
"""
IMPORT_TIME = "import time; t = time.perf_counter(); import enginecore; print(time.perf_counter() - t)"


def seconds_to_run(code: str, cache: str) -> float:
    """Wall time of a Python process."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "ENGINECORE_CACHE": cache})
    return time.perf_counter() - began


def main() -> None:
    """Print three lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    imports = [
        float(subprocess.run([sys.executable, "-c", IMPORT_TIME], check=True, capture_output=True, text=True).stdout)
        for _ in range(repeat)
    ]
    print(f"import enginecore: {statistics.median(imports):.3f} s", flush=True)
    with tempfile.TemporaryDirectory() as cache:
        print(f"process start to first token, cold: {seconds_to_run(FIRST_TOKEN, cache):.2f} s", flush=True)
        warm = [seconds_to_run(FIRST_TOKEN, cache) for _ in range(repeat)]
        print(f"process start to first token, warm: {statistics.median(warm):.2f} s", flush=True)


if __name__ == "__main__":
    main()
