"""Loaders of published traces, which take the files as they are, and of the project's own format."""

from enginecore_lab.workloads.loaders.azure import load_azure
from enginecore_lab.workloads.loaders.bailian import load_bailian
from enginecore_lab.workloads.loaders.burstgpt import load_burstgpt
from enginecore_lab.workloads.loaders.jsonl import load_jsonl, save_jsonl
from enginecore_lab.workloads.loaders.mooncake import load_mooncake
from enginecore_lab.workloads.loaders.sharegpt import ConversationLengths, count_words, load_sharegpt

__all__ = [
    "ConversationLengths",
    "count_words",
    "load_azure",
    "load_bailian",
    "load_burstgpt",
    "load_jsonl",
    "load_mooncake",
    "load_sharegpt",
    "save_jsonl",
]
