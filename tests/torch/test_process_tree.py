"""Front end, engine core and ranks, each in a process of its own: whoever is killed, nobody below is left behind."""

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.torch import fake_worker
from tests.torch.test_workers import all_gone, until

RUN = """
import sys, time
from enginecore.client import make_client
from enginecore.settings import load_settings
settings = {"model": sys.argv[1], "num_kv_blocks": 16, "max_model_len": "auto", "transport.use": "zmq",
    "executor.use": "fake", "executor.fake": {"tensor_parallel_size": 2, "num_threads": 1}}
client = make_client(load_settings(settings, components=["tests.torch.fake_executor:FAKE"], environ={}))
print("up", flush=True)
time.sleep(1000)
"""


def ranks_of(core):
    return [child.pid for child in core.children() if "enginecore-rank" in " ".join(child.cmdline())]


@pytest.mark.parametrize(
    ("victim", "when"),
    [
        ("front end", "loading"),
        ("engine core", "up"),
        pytest.param("front end", "up", marks=pytest.mark.full),
        pytest.param("engine core", "loading", marks=pytest.mark.full),
    ],
)
def test_60_nobody_outlives_a_process_above(tiny_folder, tmp_path, monkeypatch, victim, when):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    if when == "loading":
        monkeypatch.setenv(fake_worker.FAULTS, json.dumps({"1": "ignore"}))
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, str(tiny_folder)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    try:
        front_end = psutil.Process(process.pid)
        until(lambda: any(len(ranks_of(child)) == 2 for child in front_end.children()))
        (core,) = (child for child in front_end.children() if ranks_of(child))
        if when == "up":
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
        tree = [child.pid for child in front_end.children(recursive=True)]
        (front_end if victim == "front end" else core).kill()
        if victim == "front end":
            process.wait()
        until(lambda: all_gone(tree))
        until(lambda: not list(tmp_path.glob("ec-ranks-*")))
    finally:
        process.kill()
        process.communicate()
