"""This file holds the promise that the README shows what is true today: its programs run, its commands exist."""

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve_in_thread
from agent_layer.settings.settings import Settings
from trainer_adapter.config import load_config

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
COMMANDS = sorted(set(re.findall(r"^\.?(?:\.venv/bin/)?agent-layer (.*?)(?:\s+#.*)?$", README, re.MULTILINE)))

NEED_A_MODEL = ("async def agent(", "train(")

PRELUDE = """
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph

model = ChatOpenAI(model="scripted", base_url="{url}/v1", api_key="none")
builder = StateGraph(MessagesState)
builder.add_node("answer", lambda state: {{"messages": [model.invoke(state["messages"])]}})
builder.add_edge(START, "answer")
graph = builder.compile()
"""


@pytest.mark.timeout(300)
def test_the_programs_run_one_after_another(settings: Settings, tmp_path: Path):
    traced = [program for program in PROGRAMS if not any(word in program for word in NEED_A_MODEL)]
    with serve_in_thread(ScriptedEngine(script=lambda _: "it is 42")) as engine:
        source = PRELUDE.format(url=engine.url) + "\n".join(traced)
        path = tmp_path / "readme.py"
        path.write_text(source)
        environment = {**os.environ, **settings.environment()}
        done = subprocess.run(
            [sys.executable, str(path)], env=environment, capture_output=True, text=True, timeout=250, check=False
        )

    assert done.returncode == 0, done.stderr
    assert "42" in done.stdout


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_program_is_python(program: str):
    compile(program, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_the_configuration_is_one_that_a_trainer_takes(tmp_path: Path):
    (example,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    path = tmp_path / "config.yaml"
    path.write_text(example)

    assert load_config(path).rollouts.max_staleness == 1


PARTED = ("store", "engines", "export", "groups", "runs", "workers", "dead")


@pytest.mark.parametrize("line", COMMANDS)
def test_the_commands_and_their_options_exist(line: str):
    words = shlex.split(line)
    is_deep = words[:2] == ["store", "export"]
    has_parts = words[0] in PARTED and words[1:] and not words[1].startswith("-")
    path = words[: 3 if is_deep else 2] if has_parts else words[:1]
    shown = subprocess.run(
        [sys.executable, "-m", "agent_layer.cli", *path, "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )

    assert shown.returncode == 0, shown.stderr
    assert [word for word in words if word.startswith("--") and word not in shown.stdout] == []


def test_the_table_of_make_targets_is_complete():
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)

    assert phony
    assert {"demo", "test", "check", "bench", "setup"} <= set(phony[1].split())
