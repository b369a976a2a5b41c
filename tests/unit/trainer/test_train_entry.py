"""``train`` and its command refuse bad arguments before anything starts, each with one sentence."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import trainer_adapter
from agent_layer.errors import BadInputError
from agent_layer.infra import make_private, try_lock
from agent_layer.schema.sandbox import SandboxSpec
from agent_layer.settings import Settings
from envs.commands.plan import CommandOptions
from envs.tasksets.guess_number.game import Game, compare
from trainer_adapter.start.call import import_path, list_command


def test_what_can_be_imported_is_named():
    assert import_path(compare) == "envs.tasksets.guess_number.game:compare"
    assert import_path("some.module:graph") == "some.module:graph"


def test_a_command_reaches_its_worker_with_its_options():
    options = CommandOptions(workdir="template", artifacts=["out/**"])

    assert list_command(["python", "agent.py"], None) == ["--", "python", "agent.py"]
    assert list_command(["x", "-y"], options) == ["--workdir=template", "--artifact=out/**", "--", "x", "-y"]
    assert list_command("harness:pi", None) == ["harness:pi"]
    assert list_command("harness:pi", CommandOptions(is_unboxed=True)) == ["--box=none", "harness:pi"]
    assert list_command("m:agent", None) == []
    for agent, given in (("m:agent", options), ([], None), (["x", 1], None)):
        with pytest.raises(BadInputError, match="command"):
            list_command(agent, given)


@pytest.mark.parametrize("lost", [{"image": "/srv/root"}, {"env": {"A": "1"}}])
def test_what_a_workers_command_line_has_no_word_for_is_refused(lost):
    options = CommandOptions(box=SandboxSpec(kind="session", **lost))

    with pytest.raises(BadInputError, match=rf"expected a sandbox without {next(iter(lost))}"):
        list_command("harness:pi", options)


@pytest.mark.parametrize("start", [["my_agents/mine.py"], ["-m", "my_agents.mine"]])
def test_what_the_program_that_runs_defines_is_named_as_others_import_it(tmp_path, start):
    (tmp_path / "my_agents").mkdir()
    program = (
        "from trainer_adapter.start.call import import_path\nclass Graph: pass\ngraph = Graph()\ndef score(): pass\n"
    )
    (tmp_path / "my_agents" / "mine.py").write_text(f"{program}print(import_path(graph), import_path(score))\n")

    done = subprocess.run([sys.executable, *start], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["my_agents.mine:graph", "my_agents.mine:score"]


def test_a_program_that_workers_cannot_import_from_here_is_refused(tmp_path):
    program = "from trainer_adapter.start.call import import_path\ndef score(): pass\nimport_path(score)\n"
    (tmp_path / "mine.py").write_text(program)
    (tmp_path / "elsewhere").mkdir()

    done = subprocess.run(
        [sys.executable, "../mine.py"], cwd=tmp_path / "elsewhere", capture_output=True, text=True, check=False
    )

    assert "another process can import" in done.stderr


def test_a_run_has_one_job(tmp_path):
    settings = Settings(dir=tmp_path)
    make_private(tmp_path / "runs" / settings.run)
    lock = try_lock(tmp_path / "runs" / settings.run / "job.lock")

    with pytest.raises(BadInputError, match="no other job"):
        trainer_adapter.train(compare, [{"input": 1}], model=Path("m"), steps=1, settings=settings)

    os.close(lock)


def test_a_harness_that_cannot_run_is_refused_before_anything_starts(tmp_path):
    settings = Settings(dir=tmp_path / "home")

    with pytest.raises(BadInputError, match="harness 'pi': is not installed; run 'agent-layer harnesses install pi'"):
        trainer_adapter.train("harness:pi", [{"input": 1}], model=Path("m"), steps=1, settings=settings)

    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("target", [lambda task: task, Game(3), Settings().model_copy])
def test_what_no_other_process_can_import_is_refused(target):
    with pytest.raises(BadInputError, match="another process can import"):
        import_path(target)


def test_a_task_that_is_none_is_refused_before_anything_starts(tmp_path):
    settings = Settings(dir=tmp_path / "home")

    with pytest.raises(BadInputError, match="task line 2"):
        trainer_adapter.train(compare, [{"input": 1}, {"inptu": 2}], model=Path("m"), steps=1, settings=settings)

    assert not (tmp_path / "home").exists()
