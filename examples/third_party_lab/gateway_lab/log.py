"""Workloads from the log of an API gateway."""

import csv
from pathlib import Path

from enginecore.errors import ConfigurationError
from enginecore_lab.workload import Workload, WorkloadRequest
from enginecore_lab.workloads import TraceWorkload


class GatewayLog(TraceWorkload):
    """A log with the columns `time` (seconds), `customer`, `prompt` and `completion` (tokens), separated by tabs.

    Beside these settings it has those of every trace: path, start, end, requests_per_replicate and drop_empty.

    Attributes:
        customers: Only requests of these; none: of all.
    """

    customers: tuple[str, ...] = ()

    def load(self, path: Path) -> Workload:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file, delimiter="\t") if self._counts(row["customer"])]
        if not rows:
            raise ConfigurationError(f"{path} holds no requests of {', '.join(self.customers) or 'any customer'}")
        start = float(rows[0]["time"])
        requests = [
            WorkloadRequest(
                request_id=str(number),
                arrival=float(row["time"]) - start,
                num_prompt_tokens=int(row["prompt"]),
                num_output_tokens=int(row["completion"]),
                tenant=row["customer"],
            )
            for number, row in enumerate(rows)
        ]
        return Workload(name=path.stem, requests=requests)

    def _counts(self, customer: str) -> bool:
        return not self.customers or customer in self.customers
