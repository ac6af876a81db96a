"""A front end's own defaults: over everybody's, under everything that a user says."""

from enginecore.settings import Layer
from tests.settings.making import load, message_of

DEFAULTS = Layer({"transport": {"use": "zmq"}, "scheduler": {"shapes": {"weight": 2}}}, {"": "default of AsyncLLM"})


def test_they_hold_where_nobody_says_otherwise_and_say_whose_they_are():
    loaded = load(defaults=DEFAULTS)
    assert loaded.settings.component("transport").name == "zmq"
    assert loaded.settings.component("scheduler").name == "fcfs"
    assert loaded.sources["transport.use"] == loaded.sources["scheduler.shapes.weight"] == "default of AsyncLLM"
    assert loaded.sources["scheduler.use"] == loaded.sources["model"] == "default"


def test_file_environment_and_arguments_win_over_them(tmp_path):
    file = tmp_path / "engine.toml"
    file.write_text('[transport]\nuse = "inproc"\n')
    by_file = load(defaults=DEFAULTS, config_file=file)
    by_environment = load(defaults=DEFAULTS, environ={"ENGINECORE_TRANSPORT__USE": "inproc"})
    by_argument = load({"transport": {"use": "inproc"}}, defaults=DEFAULTS)
    for loaded, source in (
        (by_file, f"file {file}"),
        (by_environment, "environment ENGINECORE_TRANSPORT__USE"),
        (by_argument, "argument"),
    ):
        assert loaded.settings.component("transport").name == "inproc"
        assert loaded.sources["transport.use"] == source


def test_a_table_without_the_name_in_question_leaves_them_alone(tmp_path):
    file = tmp_path / "engine.toml"
    file.write_text("[scheduler.shapes]\nloud = true\n")
    settings = load({"scheduler.use": "shapes"}, defaults=DEFAULTS, config_file=file).settings
    assert settings.component("transport").name == "zmq"
    shapes = settings.component("scheduler").settings
    assert (shapes.weight, shapes.loud) == (2.0, True)


def test_an_error_in_them_names_the_front_end():
    defaults = Layer({"seed": "much"}, {"": "default of AsyncLLM"})
    assert "seed = 'much' (default of AsyncLLM)" in message_of(defaults=defaults)
