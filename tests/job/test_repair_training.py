"""The example that trains code repair: where learning begins, and two updates through scorer and sandbox."""

import os
import subprocess
import sys

import pytest

from agent_layer.health import progress_path, read_progress
from agent_layer.settings import Settings
from agent_layer.store import open_store
from envs.tasksets.repair.tasks import draw_problem, failures

from ..documents import ROOT
from ..waiting import run

NUM_TASKS = 12


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)


def test_one_answer_of_nine_repairs_each_task():
    for index in range(NUM_TASKS):
        problem = draw_problem("train", 0, 0, index)
        ((file, source),) = problem.broken.items()
        edited = {answer: problem.choices.apply(source, answer) for answer in problem.choices.answers()}

        right = [answer for answer, code in edited.items() if code and not failures({file: code}, problem.hidden)]
        assert len(edited) == 9
        assert right == [problem.answer]


def test_the_untrained_model_chooses_evenly_among_answers(tmp_path):
    import torch  # noqa: PLC0415  # takes seconds
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415

    from examples.code_repair.untrained_model import ANSWERS, write_model  # noqa: PLC0415

    prompts = [draw_problem("train", 0, 0, index).task.input["prompt"] for index in range(3)]
    write_model(tmp_path, prompts, seed=0)
    tokenizer, model = AutoTokenizer.from_pretrained(tmp_path), AutoModelForCausalLM.from_pretrained(tmp_path)

    answers = tokenizer.convert_tokens_to_ids(ANSWERS)
    assert [tokenizer(answer)["input_ids"] for answer in ANSWERS] == [[one] for one in answers]
    for prompt in prompts:
        ids = tokenizer.apply_chat_template([{"role": "user", "content": prompt}], return_dict=False)
        assert tokenizer.decode(ids) == prompt
        with torch.no_grad():
            chances = model(torch.tensor([ids])).logits[0, -1].softmax(-1)[answers]
        assert chances.sum() > 0.99
        assert chances.min() > 0.05
        assert chances.max() < 0.25


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_two_updates_learn_from_what_the_scorer_found_in_its_sandbox(tmp_path):
    settings = Settings(dir=tmp_path / "home", run="repair-0")
    if "ok   namespace" not in _run(settings, "agent_layer.cli", "sandbox", "doctor").stdout:
        pytest.skip("no kind of sandbox that isolates works here")
    done = _run(settings, "examples.code_repair.train", "--steps", "2", "--unchecked")

    assert done.returncode == 0, done.stdout + done.stderr
    steps = read_progress(progress_path(settings, settings.run))
    assert [step.policy_version for step in steps] == [1, 2]
    assert [step.num_null_rewards + step.num_untrainable for step in steps] == [0, 0]
    assert {len(step.success_by_task) for step in steps} == {NUM_TASKS}
    store = open_store(settings)
    found = [store.get(row.trajectory_id) for row in store.query(run=settings.run, limit=1000).items]
    rewards = {(one.task.id, one.steps[-1].action.message["content"]): one.reward for one in found}
    assert rewards == {
        (task, answer): float(
            answer == draw_problem("train", 0, 0, int(task.rpartition("-")[2])).answer.replace(" ", "")
        )
        for task, answer in rewards
    }


def _run(settings: Settings, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    variables = os.environ | settings.environment()
    command = [sys.executable, "-m", module, *arguments]
    return run(command, 600, cwd=ROOT, env=variables)
