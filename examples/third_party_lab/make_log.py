"""Writes `gateway.tsv`: 400 requests of three customers, for `experiment.toml`."""

import random
from pathlib import Path

NUM_REQUESTS = 400
PROMPTS = {"chat": (50, 300), "books": (3000, 7000), "batch": (500, 1000)}
"""Shortest and longest prompt of each customer, in tokens."""


def main() -> None:
    draw, now = random.Random(1), 0.0
    lines = ["time\tcustomer\tprompt\tcompletion"]
    for _ in range(NUM_REQUESTS):
        now += draw.expovariate(4.0)
        customer = draw.choices(list(PROMPTS), weights=(5, 1, 1))[0]
        lines.append(f"{now:.3f}\t{customer}\t{draw.randint(*PROMPTS[customer])}\t{draw.randint(20, 80)}")
    Path("gateway.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
