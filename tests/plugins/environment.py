"""A Python process that finds the plugins of one folder beside those of this environment."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def run_python(*arguments, site, cwd, environ=None):
    """Run `python *arguments`; returns the finished process with its texts."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("ENGINECORE_")}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=clean | {"PYTHONPATH": str(site), "COLUMNS": "200"} | (environ or {}),
        capture_output=True,
        text=True,
        timeout=120,
    )


class Environment:
    """`enginecore` as somebody with these plugins has it."""

    def __init__(self, site: Path, cwd: Path) -> None:
        self.site = site
        self.cwd = cwd

    def python(self, *arguments, **environ):
        return run_python(*arguments, site=self.site, cwd=self.cwd, environ=environ)

    def enginecore(self, *arguments, **environ):
        return self.python("-m", "enginecore.cli", *arguments, **environ)

    def plugins(self, *arguments, **environ):
        """The records of `enginecore plugins --json`, by distribution, and all of its output."""
        done = self.enginecore("plugins", "--json", *arguments, **environ)
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        return {record["distribution"]: record for record in answer["plugins"]}, answer


def install_examples(folder: Path, packages) -> Environment:
    """Build packages of `examples`, by folder and distribution, as wheels and install them into one environment.

    Their sources lie beside it, each in a folder of its own name.
    """
    for name in packages:
        source = shutil.copytree(REPOSITORY / "examples" / name, folder / name)  # builds leave things behind
        _run_module("build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source))
    offline = ["--no-index", "--find-links", str(folder)]
    _run_module("pip", "install", "--no-deps", "--target", str(folder / "site"), *packages.values(), *offline)
    return Environment(folder / "site", folder)


def _run_module(*command):
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
