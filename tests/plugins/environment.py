"""Python environments in which somebody else's plugins are installed."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from venv import EnvBuilder

REPOSITORY = Path(__file__).parents[2]

BUILD = """
import os
import sys
from hatchling.build import build_wheel

for source in sys.argv[2:]:
    os.chdir(source)
    print(build_wheel(sys.argv[1]))
"""


class Environment:
    """`enginecore` as somebody with these plugins has it.

    Args:
        site: A folder with plugins; None: they are installed.
        cwd: Where commands run.
        python: The interpreter.
    """

    def __init__(self, site: Path | None, cwd: Path, python: str | Path = sys.executable) -> None:
        self.site = site
        self.cwd = cwd
        self._python = str(python)

    def python(self, *arguments, **environ):
        """Run `python *arguments`; returns the finished process with its texts."""
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("ENGINECORE_", "PYTHONPATH"))}
        if self.site is not None:
            clean["PYTHONPATH"] = str(self.site)
        return subprocess.run(
            [self._python, *arguments],
            cwd=self.cwd,
            env=clean | {"COLUMNS": "200"} | environ,
            capture_output=True,
            text=True,
            timeout=240,
        )

    def enginecore(self, *arguments, **environ):
        return self.python("-m", "enginecore.cli", *arguments, **environ)

    def plugins(self, *arguments, **environ):
        """The records of `enginecore plugins --json`, by distribution, and all of its output."""
        done = self.enginecore("plugins", "--json", *arguments, **environ)
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        return {record["distribution"]: record for record in answer["plugins"]}, answer

    def own_tests(self, package: str, *options):
        """Run the tests of an example, or some of them; returns what pytest said, which must be praise."""
        done = self.python("-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(self.cwd / package))
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def make_venv(folder: Path, *, with_enginecore: bool) -> Path:
    """A virtual environment that finds the libraries of this one; returns its interpreter.

    With `enginecore` it also finds what is installed here in editable mode, else only what is installed there.
    """
    EnvBuilder(symlinks=True).create(folder)
    here, there = (sysconfig.get_path("purelib", vars=of) for of in (None, {"base": str(folder)}))
    line = f"import site; site.addsitedir({here!r})" if with_enginecore else here
    (Path(there) / "libraries.pth").write_text(f"{line}\n")
    return folder / "bin" / "python"


def install_packages(folder: Path, packages) -> Environment:
    """Build enginecore and these packages, folders, as wheels, and install them into one new environment.

    Copies of the packages lie in `folder`, each in a folder of its own name.
    """
    sources = [shutil.copytree(package, folder / package.name) for package in packages]
    wheels = folder / "wheels"
    wheels.mkdir()
    _run("-c", BUILD, str(wheels), str(REPOSITORY), *map(str, sources))
    python = make_venv(folder / "venv", with_enginecore=False)
    options = ["--no-deps", "--no-index", "--no-compile", "--ignore-installed", "--disable-pip-version-check"]
    _run("-m", "pip", "--python", str(python), "install", *options, *map(str, wheels.glob("*.whl")))
    return Environment(None, folder, python)


def _run(*arguments):
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
