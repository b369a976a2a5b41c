"""The parsers that vLLM is started with are those of the model's family, and a model that has none is named."""

import json
import re
from importlib.util import find_spec

import pytest

from agent_layer.local import parsers
from agent_layer.local.parsers import choose_parsers
from agent_layer.local.vllm import VllmServer

THINK = "{%- if enable_thinking is defined and enable_thinking is false %}<think>\\n\\n</think>{%- endif %}"
HERMES = "{%- if tools %}<tools>{{ tools }}</tools>{%- endif %}<tool_call>\\n{{ call }}\\n</tool_call>"
XML = "{%- if tools %}{%- endif %}<tool_call>\\n<function={{ call.name }}>"
DEEPSEEK = "<｜User｜><｜Assistant｜>{%- if tools %}{%- endif %}<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"
FAMILIES = {
    "Qwen2.5": ("qwen2", HERMES, "hermes", None),
    "Qwen3": ("qwen3", HERMES + THINK, "hermes", "qwen3"),
    "Qwen3 2507 instruct": ("qwen3", HERMES, "hermes", None),
    "Qwen3 2507 thinking": ("qwen3", HERMES + "{{- '<|im_start|>assistant\\n<think>\\n' }}", "hermes", "qwen3"),
    "QwQ": ("qwen2", HERMES + "{{- '<|im_start|>assistant\\n<think>\\n' }}", "hermes", "deepseek_r1"),
    "Qwen3-Coder": ("qwen3_moe", XML, "qwen3_coder", None),
    "Qwen3.5": ("qwen3_5", XML + THINK, "qwen3_coder", "qwen3"),
    "Qwen3.5, off at first": (
        "qwen3_5",
        XML + "{%- if enable_thinking is defined and enable_thinking is true %}<think>{%- endif %}",
        "qwen3_coder",
        "deepseek_v3",
    ),
    "Nemotron 3": ("nemotron_h", XML + THINK, "qwen3_coder", "nemotron_v3"),
    "Llama 3.1": ("llama", "{%- if tools %}{%- endif %}<|start_header_id|>ipython<|eot_id|>", "llama3_json", None),
    "Llama 4": ("llama4", "{%- if tools %}{%- endif %}<|header_start|>ipython", "llama4_pythonic", None),
    "Mistral": ("mistral", "{%- if tools %}{%- endif %}[TOOL_CALLS]", "mistral", None),
    "Magistral": ("mistral", "{%- if tools %}{%- endif %}[TOOL_CALLS][THINK]", "mistral", "mistral"),
    "Mistral, its own tokenizer": ("ministral3", "", "mistral", None),
    "DeepSeek V3": ("deepseek_v3", DEEPSEEK + "' + tool['type'] + '", "deepseek_v3", None),
    "DeepSeek R1": ("deepseek_v3", DEEPSEEK + "<｜Assistant｜><think>\\n", "deepseek_v3", "deepseek_r1"),
    "DeepSeek V3.1": (
        "deepseek_v3",
        "{%- set thinking = false -%}<think>" + DEEPSEEK + "'+ tool['function']['name']",
        "deepseek_v31",
        "deepseek_v3",
    ),
    "Kimi K2": ("kimi_k2", "{%- if tools -%}<|tool_calls_section_begin|>", "kimi_k2", None),
    "GLM 4.5": ("glm4_moe", "[gMASK]<sop>{%- if tools -%}<tool_call>{{ name }}<arg_key>" + THINK, "glm45", "glm45"),
    "MiniMax M2": ("minimax_m2", "{%- if tools -%}<minimax:tool_call><think>", "minimax_m2", "minimax_m2"),
    "Seed OSS": ("seed_oss", "{%- if tools -%}<seed:tool_call>\\n<function=<seed:think>", "seed_oss", "seed_oss"),
    "gpt-oss": ("gpt_oss", "{%- if tools -%}<|channel|>commentary", "openai", "openai_gptoss"),
    "Gemma 4": ("gemma4", "{%- if tools -%}<|tool_call>call:<|channel>thought", "gemma4", "gemma4"),
    "LFM2": ("lfm2", "{%- if tools -%}<|tool_list_start|>", "lfm2", None),
    "Granite 3": ("granite", "{%- if tools -%}<|tool_call|>", "granite", None),
    "Granite 4": ("granitemoehybrid", HERMES, "granite4", None),
    "Phi 4 mini": ("phi3", "{%- if tools -%}<|tool|><|tool_call|>", "phi4_mini_json", None),
    "Gemma 3": ("gemma3", "<start_of_turn>", None, None),
    "no tools": ("qwen2", "{{ message.content }}", None, None),
    "tools of a format that is not known": ("qwen2", "{%- if tools -%}<TOOLCALL>", None, None),
}


def write_model(directory, model_type, template, form="chat_template.jinja"):
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps({"model_type": model_type}))
    if form == "chat_template.jinja":
        (directory / form).write_text(template)
    elif form == "list":
        named = [{"name": "default", "template": "{{ message.content }}"}, {"name": "tool_use", "template": template}]
        (directory / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    else:
        (directory / form).write_text(json.dumps({"chat_template": template}))
    return directory


@pytest.mark.parametrize("form", ["chat_template.jinja", "tokenizer_config.json", "chat_template.json", "list"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_known_by_its_template(tmp_path, family, form):
    model_type, template, tool, reasoning = FAMILIES[family]

    found = choose_parsers(write_model(tmp_path, model_type, template, form))

    assert (found.tool, found.reasoning) == (tool, reasoning)
    assert (found.warning is None) == (tool is not None)


def test_every_parser_of_the_table_is_one_of_the_installed_vllm():
    if find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    for package, families in (("tool_parsers", parsers._TOOLS), ("reasoning", parsers._REASONING)):  # the tables
        assert {family.parser for family in families} <= parsers._list_parsers(package)


def test_who_asks_for_a_parser_gets_it(tmp_path):
    model = write_model(tmp_path, "qwen3", HERMES + THINK)

    assert choose_parsers(model, "none", "none").flags == ()
    named = choose_parsers(model, "qwen3_coder", "deepseek_r1")
    assert named.flags == (
        "--enable-auto-tool-choice",
        "--tool-call-parser=qwen3_coder",
        "--reasoning-parser=deepseek_r1",
    )
    assert named.engine_arguments == {
        "enable_auto_tool_choice": True,
        "tool_call_parser": "qwen3_coder",
        "reasoning_parser": "deepseek_r1",
    }
    assert choose_parsers(model, "none").warning is None, "who asks for none knows it"


def test_a_parser_that_knows_its_marks_only_in_a_request_is_started_with_them(tmp_path):
    """Without them vLLM refuses each request with a budget of thoughts, as Anthropic's clients send it."""
    model = write_model(tmp_path, "qwen2", "{%- set thinking = false -%}<think>")
    marks = {"reasoning_start_str": "<think>", "reasoning_end_str": "</think>"}

    found = choose_parsers(model)

    assert found.reasoning == "deepseek_v3"
    assert json.loads(found.flags[-1].removeprefix("--reasoning-config=")) == marks
    assert found.engine_arguments["reasoning_config"] == marks


@pytest.mark.parametrize("option", ["--tool-parser", "--reasoning-parser"])
def test_a_parser_that_vllm_lacks_is_refused_with_those_that_it_has(tmp_path, agent_layer, option):
    model = write_model(tmp_path / "model", "qwen2", HERMES)

    status, _, errors = agent_layer("up", "--model", model, "--port", "0", option, "no_such")

    assert status == 2
    assert f"{option} no_such" in errors
    assert "qwen3" in errors


@pytest.mark.parametrize("family", ["Gemma 3", "tools of a format that is not known"])
def test_what_has_no_parser_is_said_with_the_remedy(tmp_path, family):
    model_type, template, _, _ = FAMILIES[family]

    message = str(choose_parsers(write_model(tmp_path, model_type, template)))

    assert re.search(r"requests with tools are refused; .*--tool-parser NAME", message)


def test_a_tokenizer_without_the_marks_of_reasoning_has_no_parser_of_it(tmp_path):
    model = write_model(tmp_path, "qwen3", HERMES + THINK)
    (model / "tokenizer.json").write_text('{"added_tokens": [{"content": "<tool_call>"}]}')
    assert choose_parsers(model).reasoning is None

    (model / "tokenizer.json").write_text('{"added_tokens": [{"content": "<think>"}]}')
    assert choose_parsers(model).reasoning == "qwen3"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"chat_template": 5}', '{"chat_template": [5]}', "\udcff"])
def test_a_directory_that_cannot_be_read_has_no_family(tmp_path, content):
    for name in ("config.json", "tokenizer_config.json", "chat_template.json"):
        (tmp_path / name).write_bytes(content.encode("utf-8", "surrogateescape"))

    found = choose_parsers(tmp_path)

    assert (found.tool, found.reasoning) == (None, None)


def test_a_server_starts_with_the_parsers_of_its_model(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr("agent_layer.local.vllm.start_supervised", lambda command, *_: started.append(command))
    model = write_model(tmp_path / "model", "qwen2", HERMES)

    VllmServer(model=model, log=tmp_path / "log").start()
    VllmServer(model=model, log=tmp_path / "log", tool_parser="none").start()
    VllmServer(model=model, log=tmp_path / "log", arguments=("--tool-call-parser=xlam",)).start()

    flags = [[one for one in command if "tool" in one] for command in started]
    questions = ["--enable-auto-tool-choice", "--tool-call-parser=hermes"]
    assert flags == [questions, [], [*questions, "--tool-call-parser=xlam"]], "the last flag wins"
