"""All figures, one script after another (`make bench`). Keep the machine idle meanwhile."""

import subprocess
import sys
from pathlib import Path

SCRIPTS = (
    "startup.py",
    "scheduler_overhead.py",
    "kv_cache.py",
    "transports.py",
    "frontend_throughput.py",
    "throughput.py",
    "multiproc.py",
)


def main() -> None:
    """Run them; stop at the first that fails."""
    for script in SCRIPTS:
        print(f"== benchmarks/{script}", flush=True)
        subprocess.run([sys.executable, str(Path(__file__).with_name(script))], check=True)


if __name__ == "__main__":
    main()
