"""BurstGPT traces.

https://github.com/HPMLL/BurstGPT, `data/` and releases (Wang et al., BurstGPT, KDD 2025): `BurstGPT_1.csv`,
`BurstGPT_without_fails_1.csv` and others. CC-BY-4.0. Times and lengths of months; no content or tenants.
"""

from collections.abc import Collection, Iterator
from pathlib import Path

from enginecore_lab.workload import Workload, WorkloadRequest
from enginecore_lab.workloads.loaders.rows import csv_rows, least_tokens, trace

_COLUMNS = ("Timestamp", "Model", "Request tokens", "Response tokens", "Total tokens", "Log Type")


def load_burstgpt(
    path: Path, *, drop_empty: bool = False, models: Collection[str] = (), log_types: Collection[str] = ()
) -> Workload:
    """A trace as published: Timestamp (seconds), Model, Request tokens, Response tokens, Total tokens, Log Type.

    Args:
        path: The file.
        drop_empty: Leave out rows without prompt or output instead of refusing them: those that failed have no
            response tokens in the files that are not called `without_fails`.
        models: Only rows of these ("ChatGPT", "GPT-4"); empty: of all.
        log_types: Only rows of these ("ConversationLengths log", "API log"); empty: of all.

    Raises:
        ConfigurationError: a row is not as published; says which, and what is wrong with it.
    """
    return trace(path, _requests(path, least_tokens(drop_empty), models, log_types))


def _requests(path: Path, least: int, models: Collection[str], log_types: Collection[str]) -> Iterator[WorkloadRequest]:
    for number, row in enumerate(csv_rows(path, _COLUMNS)):
        if (models and row.text("Model") not in models) or (log_types and row.text("Log Type") not in log_types):
            continue
        yield WorkloadRequest(
            request_id=str(number),
            arrival=row.number("Timestamp", 0),
            num_prompt_tokens=row.integer("Request tokens", least),
            num_output_tokens=row.integer("Response tokens", least),
        )
