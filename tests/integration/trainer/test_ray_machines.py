"""A Ray cluster that a run should join, and that does not answer: a sentence, before anything else begins."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from agent_layer.errors import BadInputError
from agent_layer.infra import free_port
from agent_layer.settings import Settings
from trainer_adapter.cluster import JoinedCluster
from trainer_adapter.config import ClusterConfig, SourceConfig, TrainConfig

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")


@pytest.fixture
def join(tmp_path: Path):
    """``join(wait_seconds, said)``: a cluster where no Ray is."""

    def join(wait_seconds: float, spoken: list[str]) -> JoinedCluster:
        sources = [SourceConfig(path=tmp_path / "tasks.jsonl")]
        cluster = ClusterConfig(nodes=2, wait_seconds=wait_seconds)
        config = TrainConfig(model=tmp_path / "model", tasks=sources, steps=1, cluster=cluster)
        address, settings = f"127.0.0.9:{free_port()}", Settings(dir=tmp_path / "data", run="r")
        return JoinedCluster(address, config, settings, tmp_path / "run", spoken.append)

    return join


def test_a_cluster_that_does_not_answer_is_a_sentence_with_what_to_do(join):
    with pytest.raises(BadInputError) as caught:
        join(0, []).prepare(lambda: False)

    assert str(caught.value).startswith("ray at 127.0.0.9:")
    assert "no cluster answers" in str(caught.value)
    assert "RAY_AUTH_MODE=token" in str(caught.value)


def test_a_wait_for_a_cluster_is_told_and_can_be_stopped(join):
    spoken: list[str] = []

    assert join(600, spoken).prepare(lambda: bool(spoken)) is None
    assert spoken[0].startswith("waiting up to 600 s: ray at 127.0.0.9:")
