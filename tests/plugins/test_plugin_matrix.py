"""What `enginecore` makes of plugins that somebody else installed, each case in a process of its own."""

import json

import pytest

from tests.plugins.environment import Environment
from tests.registry.fake_plugins import SCHEDULER, TRANSPORT, Site

HALF_REGISTERED = """
from enginecore.plugin import Component, hookimpl

@hookimpl
def enginecore_step_finished(record):
    raise RuntimeError("left behind")

@hookimpl
def enginecore_components():
    yield Component(kind="scheduler", name="half", factory=lambda settings, context: None)
    raise RuntimeError("the other half")
"""

MISSPELT = """
from enginecore.plugin import hookimpl

@hookimpl
def enginecore_compnents():
    return []
"""

BROKEN = {
    "broken-import": ("1 / 0", "ZeroDivisionError: division by zero"),
    "broken-exit": ("import sys\nsys.exit('not today')", "SystemExit: not today"),
    "missing-extra": ("import no_such_extra_anywhere", "ModuleNotFoundError: No module named 'no_such_extra_anywhere'"),
    "broken-hook": (
        MISSPELT.replace("enginecore_compnents", "enginecore_components").replace("return []", "raise OSError('hook')"),
        "OSError: hook",
    ),
    "misspelt-hook": (MISSPELT, "there is no hook 'enginecore_compnents'; did you mean enginecore_components?"),
    "half-registered": (HALF_REGISTERED, "RuntimeError: the other half"),
}

RUN_ON_ORACLE = """
from enginecore import LLM, SamplingParams

with LLM(executor={"use": "oracle"}) as llm:
    params = SamplingParams(max_tokens=5, ignore_eos=True, detokenize=False)
    [output] = llm.generate({"prompt_token_ids": [1, 2, 3]}, params, use_tqdm=False)
    print(len(output.outputs[0].token_ids))
"""


@pytest.fixture
def site(tmp_path):
    (tmp_path / "site").mkdir()
    return Site(tmp_path / "site")


@pytest.fixture
def environment(tmp_path, site):
    return Environment(site.path, tmp_path)


def install_all_broken(site):
    for name, (source, _) in BROKEN.items():
        site.install(name, source)


def test_every_broken_plugin_is_listed_and_stops_nobody(site, environment):
    """Field case 126."""
    install_all_broken(site)
    site.install("zzz-good", SCHEDULER.format(name="good"))
    found, _ = environment.plugins()
    for name, (_, reason) in BROKEN.items():
        record = found[name]
        assert (record["status"], record["components"]) == ("failed", [])
        assert reason in record["reason"]
    assert "broken_import.py" in found["broken-import"]["traceback"]
    assert found["zzz-good"]["status"] == "active"
    assert found["zzz-good"]["components"] == [
        {"kind": "scheduler", "name": "good", "summary": "For tests.", "capabilities": []}
    ]


def test_an_engine_runs_although_every_other_plugin_is_broken(site, environment):
    """Field case 126."""
    install_all_broken(site)
    done = environment.python("-c", RUN_ON_ORACLE)
    assert (done.returncode, done.stdout) == (0, "5\n"), done.stderr
    assert "left behind" not in done.stderr  # the observer of the half-registered plugin
    for name in BROKEN:
        assert f"plugin '{name}' of distribution {name} 1.0 is left out" in done.stderr


def test_strict_makes_a_broken_plugin_the_exit_code(site, environment):
    """Field case 126."""
    assert environment.enginecore("plugins", "--strict").returncode == 0
    site.install("broken-import", "1 / 0")
    assert environment.enginecore("plugins").returncode == 0
    assert environment.enginecore("plugins", "--strict").returncode == 1


def test_other_commands_do_not_mind_broken_plugins(site, environment):
    install_all_broken(site)
    done = environment.enginecore("config", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["settings"]["scheduler"]["use"] == "fcfs"


def test_asking_for_what_a_broken_plugin_has_shows_its_traceback(site, environment):
    """Field case 126."""
    site.install("broken-import", "1 / 0")
    done = environment.enginecore("config", "--set", "scheduler.use=mine")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "scheduler.use = 'mine' (argument): no active plugin offers scheduler 'mine'" in done.stderr
    assert "ZeroDivisionError: division by zero" in done.stderr
    assert "broken_import.py" in done.stderr
    assert "enginecore/cli" not in done.stderr  # no traceback of our own


def test_two_distributions_with_one_name(site, environment):
    """Field case 130."""
    site.install("acme-one", SCHEDULER.format(name="mine"))
    site.install("acme-two", SCHEDULER.format(name="mine"))
    found, answer = environment.plugins()
    assert found["acme-one"]["status"] == found["acme-two"]["status"] == "active"
    assert answer["conflicts"] == [
        {
            "kind": "scheduler",
            "name": "mine",
            "offered_by": [
                "plugin 'acme-one' of distribution acme-one 1.0",
                "plugin 'acme-two' of distribution acme-two 1.0",
            ],
        }
    ]
    assert environment.enginecore("config").returncode == 0
    done = environment.enginecore("config", "--set", "scheduler.use=mine")
    assert done.returncode == 2
    assert "acme-one" in done.stderr
    assert "acme-two" in done.stderr
    done = environment.enginecore(
        "config", "--json", "--set", "scheduler.use=mine", ENGINECORE_PLUGINS__BLOCK='["acme-two"]'
    )
    assert json.loads(done.stdout)["settings"]["scheduler"]["use"] == "mine", done.stderr


def test_allow_and_block_act_before_import(site, environment):
    for name in ("acme-one", "acme-two"):
        site.install(name, f"open({name!r}, 'w').close()\n{SCHEDULER.format(name=name)}")
    found, _ = environment.plugins("--set", 'plugins.allow=["enginecore", "acme-one"]')
    assert (found["acme-one"]["status"], found["acme-two"]["status"]) == ("active", "blocked")
    assert (environment.cwd / "acme-one").exists()
    assert not (environment.cwd / "acme-two").exists()
    found, _ = environment.plugins(ENGINECORE_PLUGINS__BLOCK='["acme-two"]')
    assert found["acme-two"]["reason"] == "plugins.block names it"
    assert not (environment.cwd / "acme-two").exists()


def test_lists_are_read_from_the_config_file_too(site, environment):
    site.install("acme-one", SCHEDULER.format(name="mine"))
    (environment.cwd / "engine.yaml").write_text("plugins:\n  block: [acme-one]\n")
    found, _ = environment.plugins("--config", "engine.yaml")
    assert found["acme-one"]["status"] == "blocked"


def test_an_allow_list_that_names_nothing_lists_what_was_found(site, environment):
    """Field case 129."""
    site.install("acme-one", SCHEDULER.format(name="mine"))
    done = environment.enginecore("plugins", ENGINECORE_PLUGINS__ALLOW='["acme-won"]')
    assert done.returncode == 2
    assert "plugins.allow names 'acme-won'" in done.stderr
    assert "acme-one (acme-one)" in done.stderr


def test_a_third_partys_transport_waits_for_the_allow_list(site, environment):
    site.install("acme-net", TRANSPORT.format(name="net"))
    found, _ = environment.plugins()
    assert found["acme-net"]["status"] == "blocked"
    assert "plugins.allow must name it" in found["acme-net"]["reason"]
    done = environment.enginecore("config", "--set", "transport.use=net")
    assert done.returncode == 2
    assert "plugins.allow must name it" in done.stderr
    found, _ = environment.plugins("--set", 'plugins.allow=["enginecore", "acme-net"]')
    assert found["acme-net"]["status"] == "active"
