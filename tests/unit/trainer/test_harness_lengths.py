"""A run's lengths beside those that a coding agent was found to need."""

from pathlib import Path

import msgspec
import pytest

from agent_layer.settings import Settings
from envs.harnesses import NeededLengths, find_qualification, save_qualification
from trainer_adapter.config import ClusterConfig, OptimizerConfig, SourceConfig, TrainConfig
from trainer_adapter.start.plan import find_short_lengths

NEEDS = NeededLengths(max_model_len=27_648, max_row_tokens=32_768)


@pytest.mark.parametrize(
    ("engine", "cluster", "model", "row", "named"),
    [
        (None, None, 27_648, None, []),
        (None, None, 27_647, None, ["max_model_len 27,648, found 27,647"]),
        (27_648, None, 4096, 32_768, []),  # an engine that runs already
        (8192, None, 131_072, None, ["max_model_len 27,648, found 8,192"]),
        (None, 16_384, 131_072, None, ["max_model_len 27,648, found 16,384"]),
        (None, 27_648, 4096, None, []),
        (None, None, 131_072, 32_767, ["max_row_tokens 32,767"]),
        (None, None, 4096, 4096, ["max_model_len 27,648", "max_row_tokens 4,096"]),
    ],
)
def test_what_is_shorter_is_named_with_the_number_to_set(tmp_path, engine, cluster, model, row, named):
    settings, config = prepare(tmp_path, cluster, model, row)
    save_qualification(settings, msgspec.structs.replace(find_qualification(settings, "pi"), needs=NEEDS))

    found = find_short_lengths(config, settings, "pi", engine)

    assert len(found) == len(named)
    for sentence, part in zip(found, named, strict=True):
        assert "harness 'pi'" in sentence
        assert part in sentence


def test_a_harness_that_was_never_checked_or_without_a_vocabulary_refuses_nothing(tmp_path):
    settings, config = prepare(tmp_path, None, 64, 64)

    assert find_short_lengths(config, settings, "never-checked", None) == []
    save_qualification(settings, msgspec.structs.replace(find_qualification(settings, "pi"), needs=None))
    assert find_short_lengths(config, settings, "pi", None) == []


def prepare(tmp_path: Path, cluster, model, row):
    (tmp_path / "config.json").write_bytes(msgspec.json.encode({"max_position_embeddings": model}))
    config = TrainConfig(
        model=tmp_path,
        tasks=[SourceConfig(path=Path("tasks.jsonl"))],
        steps=1,
        cluster=None if cluster is None else ClusterConfig(max_model_len=cluster),
        optimizer=OptimizerConfig(max_row_tokens=row),
    )
    return Settings(dir=tmp_path / "home"), config
