"""Programs of all documents run one after another, against a scripted engine."""

import os
import sys

from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve_in_thread

from ...documents import blocks
from ...waiting import run

NEED_A_MODEL = "train("
RUN_ELSEWHERE = {
    "docs/how-to/own-parts.md",  # modules of their own: tests/job/test_own_losses.py
    "docs/how-to/adapters.md",  # needs another package: tests/integration/adapters/test_light_packages.py
}
PRELUDE = """
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph

model = ChatOpenAI(model="scripted", base_url="{url}/v1", api_key="none")
builder = StateGraph(MessagesState)
builder.add_node("answer", lambda state: {{"messages": [model.invoke(state["messages"])]}})
builder.add_edge(START, "answer")
graph = builder.compile()
"""


def test_the_programs_run_one_after_another(settings, tmp_path):
    programs = [text for page, text in blocks("python") if page not in RUN_ELSEWHERE and NEED_A_MODEL not in text]
    with serve_in_thread(ScriptedEngine(script=lambda _: "it is 42")) as engine:
        path = tmp_path / "documents.py"
        path.write_text(PRELUDE.format(url=engine.url) + "\n".join(programs))
        done = run([sys.executable, path], 200, env={**os.environ, **settings.environment()})

    assert done.returncode == 0, done.stderr
    assert "42" in done.stdout
