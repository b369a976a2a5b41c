"""What of its configuration a run may change when it goes on from a checkpoint; the rest is refused, by name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from agent_layer.errors import BadInputError
from envs.evaluation import fingerprint_weights
from trainer_adapter.config import LoraConfig, TrainConfig

_FILE: Final = "fixed-options.json"


FIXED: Final[dict[str, str]] = {
    "model": "its configuration, tokenizer, template and first weights (sampled); it may lie elsewhere",
    "seed": "tasks would come twice, or never",
    "lora": "whether there is one, rank, alpha and target_modules: the checkpoint's has that form",
    "cluster.nodes": "times gpus_per_node, as `--processes`: each has a part of the checkpoint",
    "cluster.gpus_per_node": "times nodes, as `--processes`: each has a part of the checkpoint",
}
"""What a change would break, by option, or by the section that it is in. ``list_fixed_options`` has all but the number
of processes, which a checkpoint shows by itself."""
MAY_CHANGE: Final[dict[str, str]] = {
    "tasks": "new sources and weights, from the next draw; a source that began keeps its tasks",
    "steps": "schedules follow the new number at once",
    "run": "another run: it begins at its own checkpoint, or at the first weights",
    "filters": "from the next draw",
    "evaluation": "from the next round",
    "held_out": "from the next draw; `checkpoint audit` finds what was trained before",
    "rollouts": "from the next group that is submitted",
    "algorithm": "from the next update",
    "optimizer": "from the next update; the optimizer's moments stay",
    "lora.publish": "from the next version",
    "keep": "from the next checkpoint",
    "cluster": "at once; so may `--on ray` itself",
    "trackers": "at once",
    "accept_shared_judge": "from the next start",
    "health": "at once",
    "alarms": "at once",
    "tool_parser": "at once, for engines that this run starts",
    "reasoning_parser": "at once, for engines that this run starts",
    "verl": "at once",
}
"""From when another value holds, likewise."""


def write_fixed_options(fixed: Mapping[str, str], checkpoint: Path) -> None:
    """Write what the run must keep into a checkpoint."""
    (checkpoint / _FILE).write_bytes(msgspec.json.encode(fixed))


def refuse_changes(fixed: Mapping[str, str], checkpoint: Path, run: str) -> None:
    """Raise BadInputError for what differs from the run's checkpoint and must not; older ones do not show it."""
    try:
        kept = msgspec.json.decode((checkpoint / _FILE).read_bytes(), type=dict[str, str])
    except FileNotFoundError:
        return
    for name, found in fixed.items():
        if (expected := kept.get(name, found)) != found:
            raise BadInputError(
                f"run {run}: expected {name} {expected}, as in its checkpoint {checkpoint}, found {found}"
                f" ({FIXED[name]}); undo the change, or choose another run"
            )


def list_fixed_options(config: TrainConfig) -> dict[str, str]:
    """Return what a run must keep, by option; the model by a hash of what it is."""
    lora = config.lora and msgspec.structs.replace(config.lora, publish=LoraConfig(rank=1).publish)
    return {
        "model": fingerprint_weights(config.model),
        "seed": str(config.seed),
        "lora": msgspec.json.encode(lora).decode(),
    }
