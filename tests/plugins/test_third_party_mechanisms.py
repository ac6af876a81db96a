"""The examples that fill whole seams, a scheduler and a KV cache manager with an eviction: installed from wheels."""

import json

import pytest

RUN = """
import sys
from enginecore import LLM, SamplingParams

settings = {"block_size": 8, "num_kv_blocks": 24, "max_model_len": 128, "max_num_seqs": 4}
with LLM(config_file=sys.argv[1], executor={"use": "oracle"}, **settings) as llm:
    prompts = [{"prompt_token_ids": [7] * 16 + [number] * 20} for number in range(12)]
    outputs = llm.generate(prompts, SamplingParams(max_tokens=24, detokenize=False, seed=1), use_tqdm=False)
    origins = {kind: [llm.info.components[kind], record.distribution] for kind, record in llm.origins.items()}
    print(json.dumps([origins, llm.get_stats().num_preemptions, [output.outputs[0].token_ids for output in outputs]]))
""".replace("import sys", "import json, sys")


@pytest.fixture
def environment(third_party):
    return third_party


def run(environment, config):
    done = environment.python("-c", RUN, str(config))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_enginecore_itself_comes_from_its_wheel(environment):
    done = environment.python("-c", "import enginecore, enginecore_schedulers; print(enginecore.__file__)")
    assert done.stdout.startswith(str(environment.cwd / "venv"))


def test_files_choose_them_and_no_token_changes(environment, tmp_path):
    plain = tmp_path / "plain.toml"
    plain.write_text("")
    origins, _, tokens = run(environment, plain)
    assert {distribution for _, distribution in origins.values()} == {"enginecore"}

    origins, _, others = run(environment, environment.cwd / "third_party_scheduler" / "engine.toml")
    assert origins["scheduler"] == ["plain-fcfs", "plain-fcfs"]
    assert "victim" not in origins
    assert others == tokens

    origins, num_preemptions, others = run(environment, environment.cwd / "third_party_kv_cache" / "engine.toml")
    assert (origins["kv_cache_manager"], origins["eviction"]) == (["trie", "trie-cache"], ["greedy-dual", "trie-cache"])
    assert num_preemptions > 0
    assert others == tokens


@pytest.mark.parametrize("package", ["third_party_scheduler", "third_party_kv_cache"])
def test_their_own_tests_pass(environment, package):
    assert "passed" in environment.own_tests(package)


def test_the_command_checks_them_by_name(environment):
    done = environment.enginecore("check", "--json", "eviction:greedy-dual")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {result["outcome"] for result in json.loads(done.stdout)} == {"passed"}


def test_the_wheel_holds_the_templates_of_new_packages(environment, tmp_path):
    done = environment.python("-m", "enginecore.cli", "new", "scheduler", "tried-out")
    assert done.returncode == 0, done.stderr
    assert (environment.cwd / "tried-out" / "tests" / "test_tried_out.py").is_file()
