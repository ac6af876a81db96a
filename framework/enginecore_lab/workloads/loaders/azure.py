"""Azure LLM inference traces.

https://github.com/Azure/AzurePublicDataset: `AzureLLMInferenceTrace_conv.csv` and `_code.csv` of 2023 (Patel et al.,
Splitwise, ISCA 2024), `AzureLLMInferenceTrace_conv_1week.csv` and `_code_1week.csv` of 2024 (Stojkovic et al.,
DynamoLLM, HPCA 2025). CC-BY. Times and lengths; no content, sessions or tenants.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from enginecore_lab.workload import Workload, WorkloadRequest
from enginecore_lab.workloads.loaders.rows import TraceRow, csv_rows, least_tokens, trace


def load_azure(path: Path, *, drop_empty: bool = False) -> Workload:
    """A trace as published: columns TIMESTAMP, ContextTokens, GeneratedTokens.

    Args:
        path: The file.
        drop_empty: Leave out rows without prompt or output instead of refusing them.

    Raises:
        ConfigurationError: a row is not as published; says which, and what is wrong with it.
    """
    return trace(path, _requests(path, least_tokens(drop_empty)))


def _requests(path: Path, least: int) -> Iterator[WorkloadRequest]:
    first: datetime | None = None
    for number, row in enumerate(csv_rows(path, ["TIMESTAMP", "ContextTokens", "GeneratedTokens"])):
        when = _time(row)
        first = first or when
        yield WorkloadRequest(
            request_id=str(number),
            arrival=(when - first).total_seconds(),
            num_prompt_tokens=row.integer("ContextTokens", least),
            num_output_tokens=row.integer("GeneratedTokens", least),
        )


def _time(row: TraceRow) -> datetime:
    """2023 has no time zone and seven decimals, 2024 has `+00:00` and six: all of it is UTC."""
    text = row.text("TIMESTAMP")
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        row.refuse("TIMESTAMP", text, "a date and a time, such as 2023-11-16 18:15:46.680590")
    return when if when.tzinfo else when.replace(tzinfo=UTC)
