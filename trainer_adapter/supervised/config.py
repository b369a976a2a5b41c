"""Configuration of ``train --method sft | dpo``. Paths in the file are relative to it."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from agent_layer.errors import BadInputError
from trainer_adapter.algorithms import AlgorithmConfig
from trainer_adapter.config import LoraConfig, OptimizerConfig, RetentionConfig, TrainConfig, read_options

Method: TypeAlias = Literal["sft", "dpo"]

_RATES = {"sft": 1e-5, "dpo": 1e-6}


class SupervisedConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One warm start."""

    model: Path
    """Directory with the first weights and the tokenizer, in Hugging Face's form; with DPO also the reference."""
    dataset: Path
    """Directory that ``store export sft``, ``pairs`` or ``hf`` wrote."""
    out: Path
    """New directory for the trained model, in the form of ``model``."""
    run: str | None = None
    """Name of its checkpoints; None: AGENT_LAYER_RUN with the method behind a dot."""
    epochs: Annotated[int, Meta(ge=1)] = 1
    """Passes over the dataset."""
    batch_size: Annotated[int, Meta(ge=1)] = 32
    """Rows, or pairs, of one optimizer step."""
    beta: Annotated[float, Meta(gt=0)] = 0.1
    """DPO: how strongly the reference holds."""
    seed: int = 0
    """Seed of the order of the rows."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """A file that names no learning rate has 1e-5 for SFT and 1e-6 for DPO."""
    lora: LoraConfig | None = None
    """None: all weights are trained."""
    keep: RetentionConfig = RetentionConfig(checkpoint_steps=100)
    verl: dict[str, object] = {}
    """Keys of veRL without an option here; see ``TrainConfig``."""

    def as_training(self, steps: int) -> TrainConfig:
        """Return what the embedded trainer reads: both methods are REINFORCE with given advantages, without a task."""
        return TrainConfig(
            model=self.model,
            tasks=[],
            steps=steps,
            seed=self.seed,
            algorithm=AlgorithmConfig(name="rloo"),
            optimizer=self.optimizer,
            lora=self.lora,
            verl=self.verl,
        )


def load_supervised(path: Path, method: Method) -> SupervisedConfig:
    """Read a configuration file.

    Raises: BadInputError: no such file, an unknown option, or one without effect.
    """

    def fill_in(options: dict[str, object]) -> dict[str, object]:
        written = msgspec.convert(options.get("optimizer") or {}, dict[str, object])
        return {**options, "optimizer": {"learning_rate": {"start": _RATES[method]}} | written}

    config = read_options(path, SupervisedConfig, fill_in)
    optimizer = config.optimizer
    if optimizer.epochs != 1 or optimizer.minibatches != 1:
        raise BadInputError(
            f"configuration {path}: optimizer.epochs and optimizer.minibatches divide the updates of a policy; set"
            " epochs and batch_size beside 'model' instead"
        )
    if optimizer.long_rows != "exclude":
        raise BadInputError(
            f"configuration {path}: optimizer.long_rows {optimizer.long_rows!r} would teach answers without their end;"
            " leave it out, then longer rows are left out"
        )
    base = path.parent
    return msgspec.structs.replace(
        config, model=base / config.model, dataset=base / config.dataset, out=base / config.out
    )
