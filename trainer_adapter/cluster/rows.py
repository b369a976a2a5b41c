"""Slots and rows of TransferQueue. A prompt of veRL is a slot: the place of one group, whose task our feed draws.

So curricula, filters, mixes of sources and refills are those of the embedded driver, and a restart repeats nothing.
A row is one sample of a batch, under the slot of its group.
"""

from collections.abc import Sequence
from io import BytesIO
from typing import NamedTuple

import numpy as np
import torch
import transfer_queue as tq
from omegaconf import DictConfig
from tensordict import TensorDict
from torch import Tensor
from torch.utils.data import Dataset
from transfer_queue import KVBatchMeta
from verl.experimental.agent_loop import AgentLoopManager
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from agent_layer.errors import CaptureError
from agent_layer.schema import TrainingSample
from trainer_adapter.data import TrainingBatch

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false, reportIncompatibleMethodOverride=false
# veRL, tensordict and TransferQueue carry no types; veRL calls its managers otherwise than its base class declares.

PARTITION = "train"


class SlotDataset(Dataset[dict[str, object]]):
    """As many rows as a run has groups, each with its number; the name and arguments are veRL's."""

    def __init__(self, config: DictConfig, **options: object) -> None:
        del options
        self._num_slots = int(config.train_batch_size) * int(config.num_steps)

    def __len__(self) -> int:
        return self._num_slots

    def __getitem__(self, index: int) -> dict[str, object]:
        return {
            "raw_prompt": [{"role": "user", "content": f"slot {index}"}],
            "index": index,
            "slot": torch.tensor([index]),
        }


class SlotManager(AgentLoopManager):
    """Takes the place of veRL's agent loops: collects the slots that veRL opens, in order.

    Rollouts are not started here. The feed has submitted their groups, and workers play them through our gateway.
    """

    def __init__(self) -> None:
        self._open: list[str] = []

    @classmethod
    def create(cls, *arguments: object, **options: object) -> "SlotManager":
        """Return one; veRL's name and arguments."""
        del arguments, options
        return cls()

    def generate_sequences(self, prompts: TensorDict) -> None:
        """Open a slot for each prompt."""
        names = [str(name) for name in np.array(list(prompts["uid"]), dtype=object)]
        tq.kv_batch_put(keys=names, partition_id="train", tags=[{"status": "running"}] * len(names))
        self._open += names

    def take(self, num_slots: int) -> list[str]:
        """Return as many open slots, oldest first; fewer when there are fewer."""
        taken, self._open = self._open[:num_slots], self._open[num_slots:]
        return taken

    def take_all(self) -> list[str]:
        """Return all open slots."""
        return self.take(len(self._open))


class _SamplePosition(NamedTuple):
    slot: str
    rollout: int
    """Position of the rollout in its group."""
    number: int
    """Number of the sample in its rollout."""

    @property
    def key(self) -> str:
        """Return veRL's form of it."""
        return f"{self.slot}_{self.rollout}_{self.number}"


def write_rows(batch: TrainingBatch, slots: Sequence[str], step: int, temperature: float | None = None) -> KVBatchMeta:
    """Store the rows of a batch; return their keys, in the order of its samples.

    Args:
        batch: at least one sample.
        slots: [num_groups] names that veRL gave to its prompts.
        step: of veRL, the first is 1.
        temperature: the only one that the caller can train; None: each row is trained at its own.

    Raises: CaptureError: a sample was sampled at another temperature, or some have routed experts and others not.
    """
    for sample in batch.samples:
        if temperature is not None and abs((sample.temperature or temperature) - temperature) > 1e-6:
            raise CaptureError(
                f"sample {sample.sample_id}: expected temperature {temperature:g}, found {sample.temperature:g};"
                " veRL's own trainers train one in a run: let every call have that of the configuration"
            )
    known = [one.sample_id for one in batch.samples if one.routed_experts is not None]
    if 0 < len(known) < len(batch.samples):
        raise CaptureError(
            f"batch: expected routed experts in all {len(batch.samples)} rows or in none, found them in {len(known)};"
            " let every engine of the run return them, or none"
        )
    places = _places(batch, slots)
    fields = [
        _fields(sample, place, batch.rewards[position])
        for place, position, sample in zip(places, batch.rollout_of, batch.samples, strict=True)
    ]
    if temperature is None:
        for own, sample in zip(fields, batch.samples, strict=True):
            own["temperature"] = torch.tensor(sample.temperature or 1.0)
    tags = [_tags(sample, step) for sample in batch.samples]
    keys = [place.key for place in places]
    tq.kv_batch_put(keys=keys, fields=list_of_dict_to_tensordict(fields), tags=tags, partition_id=PARTITION)
    return KVBatchMeta(partition_id=PARTITION, keys=keys, tags=tags)


def write_columns(keys: Sequence[str], columns: dict[str, list[Tensor]]) -> None:
    """Store further fields of rows: for each a tensor per key."""
    fields = {name: _column(values) for name, values in columns.items()}
    tq.kv_batch_put(keys=list(keys), fields=TensorDict(fields, batch_size=len(keys)), partition_id=PARTITION)


def read_jagged_columns(keys: Sequence[str], names: Sequence[str]) -> TensorDict:
    """Return fields of rows, as jagged tensors."""
    return tq.kv_batch_get(keys=list(keys), partition_id=PARTITION, select_fields=list(names))


def clear_rows(keys: Sequence[str]) -> None:
    """Remove rows, or slots that have none."""
    if keys:
        tq.kv_clear(keys=list(keys), partition_id=PARTITION)


def split_rows(values: Tensor) -> list[Tensor]:
    """Return the rows of a jagged or a dense tensor."""
    return list(values.unbind(0))


def _column(values: list[Tensor]) -> Tensor:
    if all(one.shape == values[0].shape for one in values):
        return torch.stack(values)
    return torch.nested.as_nested_tensor(values, layout=torch.jagged)


def _places(batch: TrainingBatch, slots: Sequence[str]) -> list[_SamplePosition]:
    slot_of = dict(zip(dict.fromkeys(batch.group_ids), slots, strict=True))
    members: dict[str, int] = {}
    rollout_in_group: list[int] = []
    for group_id in batch.group_ids:
        rollout_in_group.append(members.get(group_id, 0))
        members[group_id] = rollout_in_group[-1] + 1
    numbers: dict[int, int] = {}
    places: list[_SamplePosition] = []
    for position in batch.rollout_of:
        number = numbers.get(position, 0)
        numbers[position] = number + 1
        places.append(_SamplePosition(slot_of[batch.group_ids[position]], rollout_in_group[position], number))
    return places


def _fields(sample: TrainingSample, place: _SamplePosition, reward: float) -> dict[str, object]:
    """Return what veRL's agent loops store for one sequence."""
    prompts = torch.tensor(list(sample.prompt_ids), dtype=torch.int64)
    responses = torch.tensor(list(sample.response_ids), dtype=torch.int64)
    mask = torch.tensor(list(sample.loss_mask), dtype=torch.int64)
    scores = torch.zeros(len(responses), dtype=torch.float32)
    scores[-1] = reward
    versions = _versions(sample)
    routes: dict[str, object] = {}
    if sample.routed_experts is not None:
        routes = {"routed_experts": torch.from_numpy(np.load(BytesIO(sample.routed_experts), allow_pickle=False))}
    return {
        **routes,
        "prompts": prompts,
        "responses": responses,
        "input_ids": torch.cat([prompts, responses]),
        "position_ids": torch.arange(len(prompts) + len(responses)),
        "response_mask": mask,
        "loss_mask": mask,
        "rollout_log_probs": torch.tensor(list(sample.logprobs), dtype=torch.float32),
        "rm_scores": scores,
        "advantages": torch.zeros(len(responses), dtype=torch.float32),
        "returns": torch.zeros(len(responses), dtype=torch.float32),
        "uid": place.slot,
        "session_id": place.rollout,
        "num_turns": len(sample.steps),
        "multi_modal_inputs": {},
        "extra_fields": {
            "reward_extra_info": {},
            "min_global_steps": versions[0],
            "max_global_steps": versions[1],
            "sample_id": sample.sample_id,
        },
        "metrics": {},
    }


def _tags(sample: TrainingSample, step: int) -> dict[str, object]:
    oldest, newest = _versions(sample)
    return {
        "status": "success",
        "prompt_len": len(sample.prompt_ids),
        "response_len": len(sample.response_ids),
        "seq_len": len(sample.prompt_ids) + len(sample.response_ids),
        "global_steps": step,
        "min_global_steps": oldest,
        "max_global_steps": newest,
    }


def _versions(sample: TrainingSample) -> tuple[int, int]:
    """Return the oldest and the newest policy version of a sample's tokens; veRL calls them steps."""
    known = [version for version in sample.versions if version >= 0]
    return min(known, default=0), max(known, default=0)
