"""`enginecore config`, and what all commands share."""

import json
import subprocess
import sys

import pytest

from enginecore.cli import main
from enginecore.settings import load_settings


@pytest.fixture
def run(capsys, monkeypatch):
    """Runs a command; returns exit code, stdout and stderr."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments):
        with pytest.raises(SystemExit) as exit:
            main(arguments)
        captured = capsys.readouterr()
        return exit.value.code or 0, captured.out, captured.err

    return run


def cells(out):
    """Rows of the table, by setting: value and origin."""
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if "│" in line]
    return {row[0]: tuple(row[1:]) for row in rows}


def test_it_shows_each_value_with_where_it_came_from(run, tmp_path, monkeypatch):
    file = tmp_path / "e.toml"
    file.write_text("max_num_seqs = 8\n")
    monkeypatch.setenv("ENGINECORE_KV_CACHE_MEMORY", "1GiB")
    code, out, err = run("config", "--config", str(file), "--set", "scheduler.fcfs.prefill_chunk_size=64")
    assert (code, err) == (0, "")
    rows = cells(out)
    assert rows["scheduler.fcfs.prefill_chunk_size"] == ("64", "argument")
    assert rows["kv_cache_memory"] == ("1073741824", "environment ENGINECORE_KV_CACHE_MEMORY")
    assert rows["max_num_seqs"] == ("8", f"file {file}")
    assert rows["scheduler.use"] == ('"fcfs"', "default")


def test_what_does_not_run_is_left_out_unless_somebody_set_it(run):
    rows = cells(run("config")[1])
    assert not [key for key in rows if key.startswith("executor.oracle.")]
    rows = cells(run("config", "--set", "executor.oracle.depth=2")[1])
    assert [key for key in rows if key.startswith("executor.oracle.")] == ["executor.oracle.depth"]
    rows = cells(run("config", "--set", "executor.use=oracle")[1])
    assert rows["executor.oracle.depth"] == ("1", "default")


def test_json_is_everything(run):
    code, out, _ = run("config", "--json", "--set", "seed=3")
    answer = json.loads(out)
    assert code == 0
    loaded = load_settings({"seed": 3})
    assert answer == {"settings": loaded.settings.model_dump(mode="json"), "sources": dict(loaded.sources)}
    assert answer["sources"]["seed"] == "argument"


def test_the_schema_accepts_what_the_settings_accept(run):
    schema = json.loads(run("config", "--schema")[1])
    assert schema["additionalProperties"] is False
    assert schema["properties"]["scheduler"]["$ref"] == "#/$defs/SchedulerTable"
    assert {"use", "fcfs"} <= schema["$defs"]["SchedulerTable"]["properties"].keys()
    assert {"use", "oracle", "single"} <= schema["$defs"]["ExecutorTable"]["properties"].keys()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "max_num_seqs=0"], "max_num_seqs = '0' (argument): must be greater than or equal to 1"),
        (
            ["--set", "scheduler.us=fcfs"],
            "scheduler.us = 'fcfs' (argument): no such setting; did you mean scheduler.use?",
        ),
        (["--config", "missing.toml"], "config file missing.toml cannot be read: No such file or directory"),
    ],
)
def test_bad_settings_end_with_2_and_one_line(run, arguments, message):
    assert run("config", *arguments) == (2, "", f"error: {message}\n")


def test_a_misspelt_command_names_the_right_one(run):
    code, _, err = run("confg")
    assert code == 2
    assert "config" in err


@pytest.mark.parametrize("command", [["plugins", "--json"], ["config", "--json"]])
def test_no_command_of_these_imports_torch_or_another_command(command):
    script = (
        "import sys\nfrom enginecore.cli import main\n"
        f"try:\n    main({command!r})\nexcept SystemExit:\n    pass\n"
        "heavy = ['torch', 'transformers', 'tokenizers', 'enginecore.cli.generate', 'enginecore.frontend.llm']\n"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout)
    assert done.stderr == "[]\n"
