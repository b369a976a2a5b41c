"""A job ends when its trainer does, and early when anything that the trainer needs has ended."""

import sys

import pytest

from agent_layer.errors import AgentLayerError
from agent_layer.infra.processes.supervised import start_supervised
from agent_layer.settings import Settings
from trainer_adapter.start.job import RunningJob

FOR_EVER = "import threading; threading.Event().wait()"


@pytest.fixture
def job(tmp_path):
    """``job(trainer=…, worker=…)``: a job of such programs."""
    started = []

    def run(**programs):
        processes = {
            name: start_supervised([sys.executable, "-c", program], {}, tmp_path / f"{name}.log")
            for name, program in programs.items()
        }
        started.extend(processes.values())
        return RunningJob(settings=Settings(dir=tmp_path), trainer=processes["trainer"], processes=processes)

    yield run
    for process in started:
        process.stop()


def test_a_worker_that_has_ended_ends_the_wait_for_the_trainer(job):
    running = job(trainer=FOR_EVER, worker="print('out of memory')")

    with pytest.raises(AgentLayerError, match=r"(?s)^worker: expected it to run .* out of memory"):
        running.wait()


def test_a_trainer_that_failed_is_quoted(job):
    running = job(trainer="raise SystemExit('no such model')", worker=FOR_EVER)

    with pytest.raises(AgentLayerError, match=r"(?s)^trainer: .* status 1; .* no such model"):
        running.wait()


def test_the_last_look_is_after_the_end_of_the_trainer(job, tmp_path):
    running, found = job(trainer=f"open({str(tmp_path / 'made')!r}, 'w')", worker=FOR_EVER), []

    running.wait(lambda: found.append((tmp_path / "made").exists()))

    assert found[-1]
