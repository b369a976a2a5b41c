"""A trainer on Ray that died is started again a limited number of times; one that must not go on is not."""

import msgspec
import pytest

from agent_layer.errors import AgentLayerError, BadInputError, EngineError
from agent_layer.health.progress import append_progress, progress_path
from agent_layer.health.restarts import read_restarts, restarts_path
from agent_layer.settings import Settings
from trainer_adapter.cluster.end import TrainerEnd, write_end
from trainer_adapter.config import ClusterConfig, SourceConfig, TrainConfig
from trainer_adapter.start import ray
from trainer_adapter.start.ray import RestartCount

from ..health.reports import report

KILLED = TrainerEnd(why="killed")


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.setattr(ray.time, "sleep", lambda _: None)
    return Settings(dir=tmp_path, run="r")


@pytest.fixture
def config(tmp_path):
    sources = [SourceConfig(path=tmp_path / "tasks.jsonl")]
    return TrainConfig(model=tmp_path, tasks=sources, steps=9, cluster=ClusterConfig(restarts=2))


def test_starts_without_a_new_step_are_limited_and_recorded(settings, config):
    count = RestartCount(config, settings)

    assert [count.record(KILLED) for _ in range(3)] == [True, True, False]

    recorded = read_restarts(restarts_path(settings, "r"))
    assert [(one.number, one.most, one.what, one.why, one.from_step) for one in recorded] == [
        (1, 2, "run", "killed", 0),
        (2, 2, "run", "killed", 0),
    ]
    assert "died after 2 restarts without a new step (cluster.restarts): killed" in count.explain(KILLED)


def test_a_new_step_makes_room_for_more_starts_a_repeated_one_does_not(settings, config):
    append_progress(progress_path(settings, "r"), report(1))
    count = RestartCount(config, settings)
    assert count.record(KILLED)
    assert count.record(KILLED)

    append_progress(progress_path(settings, "r"), report(1))
    assert not count.record(KILLED)
    append_progress(progress_path(settings, "r"), report(2))
    assert count.record(KILLED)


def test_no_restart_at_all(settings, config):
    none = msgspec.structs.replace(config, cluster=ClusterConfig(restarts=0))

    assert not RestartCount(none, settings).record(KILLED)
    assert read_restarts(restarts_path(settings, "r")) == []


@pytest.mark.parametrize(
    ("error", "is_final"),
    [
        (AgentLayerError("run r: expected a healthy run"), True),
        (BadInputError("model: expected a directory"), True),
        (EngineError("engine: replaced 3 times"), False),
        (RuntimeError("CUDA error\n  at line 3"), False),
    ],
)
def test_what_another_start_cannot_mend_is_final(tmp_path, error, is_final):
    write_end(tmp_path, error)

    end = msgspec.json.decode((tmp_path / "end.json").read_bytes(), type=TrainerEnd)
    assert (end.is_final, "\n" in end.why) == (is_final, False)
    assert end.why == (str(error) if is_final else f"{type(error).__name__}: {' '.join(str(error).split())}")
