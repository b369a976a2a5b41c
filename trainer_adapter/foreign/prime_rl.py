"""Batches for prime-rl's trainer, in the place of its orchestrator: weights come from its files, rows go into others.

Step s of prime-rl (0.8, the first is 1) trains ``rollouts/step_{s}/rank_{r}.bin`` with the weights that it left in
``broadcasts/step_{s-1}``. Nothing here imports prime-rl.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from agent_layer.errors import AgentLayerError, BadInputError
from agent_layer.infra import replace_file
from agent_layer.schema import Task
from agent_layer.settings import Settings, load_settings
from trainer_adapter.algorithms import AlgorithmConfig, resolve_algorithm
from trainer_adapter.config import HeldOutConfig
from trainer_adapter.data import ModelBounds, TrainingBatch, select_batch, spread_advantages
from trainer_adapter.foreign.micro_batches import pack_rows, split_ranks
from trainer_adapter.foreign.rounds import GroupRequest, RoundPlayer
from trainer_adapter.foreign.weights import ServedWeights

if TYPE_CHECKING:
    from torch import Tensor

_ALGORITHM: Final = resolve_algorithm(AlgorithmConfig(name="dr_grpo"))
"""Advantages as prime-rl's GRPO has them: the reward without the mean of its group. The loss is prime-rl's."""
_MAX_ROUNDS = 10
"""Rounds of the same tasks without two different rewards in a group after which a step is given up."""
_POLL_SECONDS = 0.25


class PrimeRlFeed:
    """Plays the groups of each step with the weights that prime-rl has written, and writes its batch.

    Workers and an engine of the same run must be there: ``agent-layer up``, ``agent-layer work``.

    Args:
        output_dir: of prime-rl's trainer, whose rollout transport and weight broadcast are ``filesystem``.
        model: directory of the first weights, with tokenizer; prime-rl starts from it, too.
        tasks: that a step may name.
        settings: locations of state; None: those of the environment.
        seq_len: most tokens of a micro-batch, ``model.seq_len`` of prime-rl; rollouts with a longer row are left out.
        num_ranks: data-parallel ranks.
        held_out: sets that are not trained.
        patience_seconds: longest wait for weights, and for the next group.
    """

    def __init__(  # noqa: PLR0913  # prime-rl's options, and ours
        self,
        output_dir: Path,
        model: Path,
        tasks: Sequence[Task],
        settings: Settings | None = None,
        *,
        seq_len: int,
        num_ranks: int = 1,
        held_out: Sequence[HeldOutConfig] = (),
        patience_seconds: float = 600.0,
    ) -> None:
        settings = settings or load_settings()
        self._output_dir, self._seq_len, self._num_ranks = output_dir, seq_len, num_ranks
        self._patience = patience_seconds
        self._player = RoundPlayer(
            tasks,
            settings,
            settings.run,
            held_out=held_out,
            bounds=ModelBounds(max_positions=seq_len),
            patience_seconds=patience_seconds,
        )
        self._weights = ServedWeights(model, settings)
        self.tasks = self._player.tasks

    def send(self, step: int, requests: Sequence[GroupRequest], temperature: float = 1.0) -> TrainingBatch:
        """Play groups with the weights before a step, and write what prime-rl trains in it; return that.

        Args:
            step: as prime-rl counts; the first is 1, or the one behind its checkpoint.
            requests: of groups; they are played again until two rewards of one differ.
            temperature: of every call.

        Raises:
            BadInputError: prime-rl writes an adapter, or a task is not known.
            AgentLayerError: weights or groups do not come, or rewards do not differ.
            EngineError: no engine of the run serves the weights.
        """
        version = self._weights.serve(self._read_weights(step - 1), step - 1)
        for _ in range(_MAX_ROUNDS):
            groups = self._player.play(requests, version, temperature)
            batch = select_batch((group.samples for group in groups), keep_equal=False)
            if batch.samples:
                break
        else:
            raise AgentLayerError(
                f"prime-rl, step {step}: expected two different rewards in a group, found none in {_MAX_ROUNDS} rounds"
                f" of {len(requests)} groups; see 'agent-layer rollouts' for the causes"
            )
        self._player.record(batch, step, version)
        micro_batches = pack_rows(batch, spread_advantages(batch, _ALGORITHM), temperature, self._seq_len)
        directory = self._output_dir / "rollouts" / f"step_{step}"
        directory.mkdir(parents=True, exist_ok=True)
        for rank, own in enumerate(split_ranks(micro_batches, self._num_ranks)):
            replace_file(directory / f"rank_{rank}.bin", msgspec.msgpack.encode(own), private=False)
        return batch

    def _read_weights(self, step: int) -> "Iterator[tuple[str, Tensor]]":
        """Yield the tensors that prime-rl wrote after a step, once they are whole."""
        # safetensors leaves the type of a path open; torch takes seconds
        from safetensors.torch import load_file  # noqa: PLC0415  # pyright: ignore[reportUnknownVariableType]

        directory = self._output_dir / "broadcasts" / f"step_{step}"
        deadline = time.monotonic() + self._patience
        while not (directory / "STABLE").exists():
            if time.monotonic() > deadline:
                raise AgentLayerError(
                    f"prime-rl: expected weights in {directory}, found none for {self._patience:g} s; set its"
                    " weight_broadcast.type to 'filesystem', and start its trainer"
                )
            time.sleep(_POLL_SECONDS)
        if (directory / "adapter_config.json").exists():
            raise BadInputError(
                f"prime-rl: expected whole weights in {directory}, found an adapter; train without LoRA"
            )
        for file in sorted(directory.glob("*.safetensors")):
            yield from load_file(file).items()
