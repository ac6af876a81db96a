"""The command `enginecore new`: a package to start a plugin from."""

import re
import sys
from importlib.metadata import version
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from typing import Annotated, Any

import typer
from jinja2 import Environment, PackageLoader, StrictUndefined

from enginecore import scheduling
from enginecore.errors import ConfigurationError, PluginError
from enginecore.plugin import PLUGIN_API, Component
from enginecore.registry.spelling import closest
from enginecore.settings import load_registry

_NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
_SUFFIX = ".jinja"


def new(
    kind: Annotated[str, typer.Argument(help="Kind of the component: scheduler.")],
    name: Annotated[str, typer.Argument(help="Name by which users choose it, such as least-work.")],
) -> None:
    """Write a package that offers a component: code, tests, and how to install it.

    The package goes into a new folder of its name.
    """
    templates = Environment(
        loader=PackageLoader("enginecore_conformance.commands"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )
    files = _files_of(templates, kind)
    words = _words(name)
    folder = Path(name)
    try:
        folder.mkdir()
    except FileExistsError:
        raise ConfigurationError(f"{folder} exists already: choose another name, or remove it first") from None
    for path, template in files.items():
        target = folder / path.replace("module", words["module"])
        target.parent.mkdir(exist_ok=True)
        target.write_text(templates.get_template(template).render(words), encoding="utf-8")
    typer.echo(_what_next(kind, name, words["module"]))


def _files_of(templates: Environment, kind: str) -> dict[str, str]:
    """The templates of a kind, by the paths of the files that they make."""
    names = templates.list_templates(extensions=[_SUFFIX.removeprefix(".")])
    kinds = sorted({name.partition("/")[0] for name in names})
    if kind not in kinds:
        hint = closest(kind, kinds) or f"; there are templates for: {', '.join(kinds)}"
        raise ConfigurationError(f"there is no template for {kind!r}{hint}")
    return {name.removeprefix(f"{kind}/").removesuffix(_SUFFIX): name for name in names if name.startswith(f"{kind}/")}


def _words(name: str) -> dict[str, Any]:
    """Words that fill the templates.

    Raises:
        ConfigurationError: the name cannot be one, or something else has it; says what would do.
    """
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{name!r} cannot be the name of a package: it must begin with a letter and be of lower-case letters and "
            "digits, in parts joined by single '-' or '_', such as 'least-work'"
        )
    module = name.replace("-", "_")
    class_name = "".join(part.capitalize() for part in module.split("_"))
    if taken := _taken_by(name, module, class_name):
        raise ConfigurationError(f"{name!r} {taken}: choose another name")
    return {
        "name": name,
        "module": module,
        "class_name": class_name,
        "version": version("enginecore"),
        "plugin_api": PLUGIN_API,
    }


def _taken_by(name: str, module: str, class_name: str) -> str | None:
    """Why a name is not free, as the end of a sentence."""
    if module.startswith("enginecore"):
        return "begins as the packages of enginecore itself do"
    if iskeyword(module) or module in sys.stdlib_module_names:
        return f"would make a module {module}, which Python itself has a use for"
    if hasattr(scheduling, class_name):
        return f"would make a class {class_name}, as the toolkit has one"
    registry = load_registry(environ={})
    try:
        registry.with_components([Component(kind="scheduler", name=name, factory=lambda settings, context: None)])
    except PluginError as error:
        return f"will not do ({error})"
    for component in registry.components("scheduler"):
        if component.name.lower().replace("-", "_") == module:
            return f"is the name of a scheduler that is installed, {component.name!r}"
    if find_spec(module) is not None:
        return f"would make a module {module}, and one of that name is installed"
    return None


def _what_next(kind: str, name: str, module: str) -> str:
    return (
        f"{name}/ holds a package with one {kind}; {module}.py is the place to begin. Next:\n"
        f"\n"
        f"  cd {name}\n"
        f"  pip install -e '.[test]'\n"
        f"  enginecore check {kind}:{name}\n"
        f"  pytest"
    )
