"""``tasksets audit --model``: which tasks of a sample a model solves always, and which never."""

import json

import pytest

from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve_in_thread

SET = """
from agent_layer.schema import Task
from envs.tasksets import Script

class Echoes:
    name, version, levels, agent = "echoes", "1", range(1), "eval_agents:agent"

    def tasks(self, *, split, seed=0, level=0, count=None):
        for number in range(min(count or 4, 4)):
            said = {"say": f"{split}{number}", "expected": f"{split}{number}" if number % 2 else "another"}
            yield Task(id=f"{split}-{number}", run="r", input=said)

    def solve(self, task):
        return Script(name="none")

    def rewrites(self, task):
        return ()

    mutants = cheats = rewrites
"""


@pytest.mark.long
def test_tasks_that_a_model_solves_always_or_never_are_named(folder, agent_layer, monkeypatch):
    (folder / "echoes.py").write_text(SET)
    monkeypatch.chdir(folder)

    with serve_in_thread(ScriptedEngine()) as engine:
        status, printed, errors = agent_layer(
            *("tasksets", "audit", "echoes.py", "--model", f"{engine.url}/v1", "-n", "2", "--sample", "8", "--json")
        )

    assert status == 0, errors
    report = json.loads(printed)
    assert {one["code"]: sorted(one["tasks"]) for one in report["findings"]} == {
        "always-solved": ["eval-1", "eval-3", "train-1", "train-3"],
        "never-solved": ["eval-0", "eval-2", "train-0", "train-2"],
    }
    assert report["figures"]["model_share_level_0"] == 0.5
