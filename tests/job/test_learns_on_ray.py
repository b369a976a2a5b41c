"""The demo's untrained model learns its game through stock veRL on Ray, with veRL's own vLLM."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from agent_layer.health.progress import progress_path, read_progress
from agent_layer.settings import Settings
from trainer_adapter.demo.cli import STEPS
from trainer_adapter.demo.display import mean_success
from trainer_adapter.demo.job import RECIPE
from trainer_adapter.launch import Job, run_job

from .ray_runs import RUN, configure

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # torch, ray and veRL warn of each other
    pytest.mark.timeout(3600),
    pytest.mark.long,
]

GOAL = 0.9
"""Success of five steps: a tree of guesses in which two numbers share a leaf reaches 0.83."""
WINDOW = 5


class HasLearned(Exception):  # noqa: N818  # it ends a run, and is no error
    """The last steps have reached the goal."""


def test_the_demo_learns_its_game_on_ray(tmp_path: Path, record_property: Callable[[str, object], None]):
    settings = Settings(dir=tmp_path / "data", run=RUN)
    job = Job(config=configure(tmp_path, STEPS), target=RECIPE.target, slots=RECIPE.slots, on_ray=True)

    def look() -> None:
        last = read_progress(progress_path(settings, RUN))[-WINDOW:]
        if len(last) == WINDOW and mean_success(last) >= GOAL:
            raise HasLearned

    with suppress(HasLearned), run_job(settings, job) as running:
        running.wait(look)

    steps = read_progress(progress_path(settings, RUN))
    record_property("success by step", [round(step.success or 0, 3) for step in steps])
    record_property("seconds", round(steps[-1].ended_at - steps[0].ended_at, 1))
    assert mean_success(steps[:1]) < 0.5, "it was not untrained"
    assert mean_success(steps[-WINDOW:]) >= GOAL, [step.success for step in steps]
    assert {step.staleness_max for step in steps} == {0}
    assert max(step.metrics["ratio_gap"] or 0 for step in steps) < 1e-4
