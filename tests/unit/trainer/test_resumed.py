"""What a run may change when it goes on: every option has a rule, documents show them, and the rest is refused."""

from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from agent_layer.errors import BadInputError
from trainer_adapter.config import ClusterConfig, LoraConfig, SourceConfig, TrainConfig
from trainer_adapter.loop.resumed import FIXED, MAY_CHANGE, list_fixed_options, refuse_changes, write_fixed_options

DOCS = Path(__file__).parents[3] / "docs/how-to/training.md"


@dataclass
class Kept:
    """A run with its checkpoint."""

    config: TrainConfig
    checkpoint: Path

    def refuse(self, **changes: object) -> None:
        changed = msgspec.structs.replace(self.config, **changes)
        refuse_changes(list_fixed_options(changed), self.checkpoint, "r")


def write_model(
    path: Path,
    *,
    config: str = '{"vocab_size": 20}',
    vocab: str = '{"a": 0}',
    weights: bytes,
    others: dict[str, str] | None = None,
) -> Path:
    path.mkdir()
    (path / "config.json").write_text(config)
    (path / "vocab.json").write_text(vocab)
    (path / "model.safetensors").write_bytes(weights)
    for name, content in (others or {}).items():
        (path / name).write_text(content)
    return path


WEIGHTS = bytes(range(256)) * 40_000


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    model = write_model(tmp_path / "model", weights=WEIGHTS)
    lora = LoraConfig(rank=4)
    config = TrainConfig(model=model, tasks=[SourceConfig(path=Path("tasks.jsonl"))], steps=3, lora=lora)
    checkpoint = tmp_path / "step-000001"
    checkpoint.mkdir()
    write_fixed_options(list_fixed_options(config), checkpoint)
    return Kept(config, checkpoint)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("config", {"config": '{"vocab_size": 21}'}),
        ("tokenizer", {"vocab": '{"b": 0}'}),
        ("weights", {"weights": bytes(reversed(WEIGHTS))}),
        ("template", {"others": {"chat_template.jinja": "{{ messages }}"}}),
        ("sampling", {"others": {"generation_config.json": "{}"}}),
    ],
)
def test_another_model_is_refused_by_what_it_is(kept: Kept, tmp_path: Path, name: str, change: dict[str, bytes]):
    other = write_model(tmp_path / name, **{"weights": WEIGHTS, **change})

    with pytest.raises(BadInputError, match=r"run r: expected model .* as in its checkpoint .*; undo the change, or"):
        kept.refuse(model=other)


def test_the_same_model_may_lie_elsewhere(kept: Kept, tmp_path: Path):
    kept.refuse(model=write_model(tmp_path / "moved", weights=WEIGHTS))


@pytest.mark.parametrize(
    "name", ["README.md", "trainer_state.json", "results.json", "parent-checkpoint.json", "notes.txt", "all.jsonl"]
)
def test_what_is_no_part_of_a_model_may_come_into_its_directory(kept: Kept, name: str):
    (kept.config.model / name).write_text("{}")
    kept.refuse()


@pytest.mark.parametrize("change", [{"seed": 1}, {"lora": None}, {"lora": LoraConfig(rank=8)}])
def test_a_fixed_option_is_refused_by_name(kept: Kept, change: dict[str, object]):
    (name,) = change

    with pytest.raises(BadInputError, match=rf"expected {name} .*, found .*{FIXED[name]}"):
        kept.refuse(**change)


def test_all_else_may_change_and_an_older_checkpoint_is_taken(kept: Kept):
    kept.refuse(steps=9, lora=LoraConfig(rank=4, publish="adapter"), run="other", health={"forks": "off"})
    for path in kept.checkpoint.iterdir():
        path.unlink()
    kept.refuse(seed=1)


def test_every_option_has_a_rule_and_every_rule_an_option(kept: Kept):
    rules = {**FIXED, **MAY_CHANGE}
    sections = {"cluster": ClusterConfig, "lora": LoraConfig}
    options = {f"{name}.{field}" for name, section in sections.items() for field in section.__struct_fields__}

    assert not FIXED.keys() & MAY_CHANGE.keys()
    assert set(TrainConfig.__struct_fields__) <= rules.keys() <= {*TrainConfig.__struct_fields__, *options}
    assert FIXED.keys() == {*list_fixed_options(kept.config), "cluster.nodes", "cluster.gpus_per_node"}


def test_the_documents_have_the_rules():
    rows = [f"| `{name}` | no | {effect} |" for name, effect in FIXED.items()]
    rows += [f"| `{name}` | yes | {effect} |" for name, effect in MAY_CHANGE.items()]

    assert "\n".join(rows) in DOCS.read_text()
