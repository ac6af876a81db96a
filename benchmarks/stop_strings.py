"""What stop strings cost the front end: microseconds per token, the best of several runs.

python benchmarks/stop_strings.py [--tokens N] [--repeat N]
"""

import argparse
import random
import time
from collections.abc import Sequence

from enginecore.frontend.stop_strings import StopStringMatcher

WORDS = "The scheduler hands out tokens as long as there are any. \n User and system take turns".split(" ")
LETTERS = "etaoin shrdlu"


def cases() -> dict[str, list[str]]:
    """Stop strings by a name for them."""
    draw = random.Random(0)
    return {
        "one, rare": ["\n\n"],
        "one, begins often": ["the end of it"],
        "four of a chat": ["\nUser:", "</s>", "<|im_end|>", "###"],
        "16, begin often": [f"{word}stop{n}" for n, word in enumerate(draw.choices(WORDS, k=16))],
        "64 of 1,000 characters": ["".join(draw.choices(LETTERS, k=1000)) for _ in range(64)],
    }


def microseconds_per_token(stops: Sequence[str], pieces: Sequence[str]) -> float:
    """One pass over the text. A stop string that is found is passed by."""
    matcher, held = StopStringMatcher(stops), ""
    began = time.perf_counter()
    for piece in pieces:
        held = matcher.find(held, piece).held
    return (time.perf_counter() - began) / len(pieces) * 1e6


def main() -> None:
    """Measure all cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    draw = random.Random(1)
    pieces = [f" {draw.choice(WORDS)}" for _ in range(arguments.tokens)]
    for name, stops in cases().items():
        best = min(microseconds_per_token(stops, pieces) for _ in range(arguments.repeat))
        print(f"{name:24s} {best:8.2f} us/token")


if __name__ == "__main__":
    main()
