"""Plug-ins for a ``main_ppo`` of veRL that a user starts: its prompts are our tasks, its rows come from the store.

veRL's own synchronous trainer trains, with its own algorithm and workers. Three of its seams name what is here:
the data set (``data.custom_cls``), the agent loop manager (``rollout.agent.agent_loop_manager_class``) and the sampler
(``trainer.v1.sampler.custom_sampler``). While veRL waits for its batch, the sampler lets gateways send calls to veRL's
servers, has the groups played, writes their rows, and lets gateways hold the calls again: veRL puts its servers to
sleep then, trains and sends weights. So each token has the version that the registry names.
"""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import cast

import numpy as np
import ray
from redis import Redis
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1 import trainer_base
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from agent_layer.engines import remove_ended_engines
from agent_layer.errors import AgentLayerError, BadInputError
from agent_layer.infra import open_redis
from agent_layer.recorder import open_recorder
from agent_layer.settings import load_settings
from trainer_adapter.cluster.plugin import use_own_servers
from trainer_adapter.cluster.rows import SlotManager, clear_rows, write_rows
from trainer_adapter.cluster.server import ClusterReplica
from trainer_adapter.cluster.task_data import TaskDataset, list_held_out, read_task_files
from trainer_adapter.cluster.weights.fleet import EngineFleet, name_location
from trainer_adapter.data import GroupIntake, select_batch
from trainer_adapter.foreign import GroupRequest, RoundPlayer
from trainer_adapter.verl import WeightPublisher

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false, reportAttributeAccessIssue=false
# veRL carries no types.

__all__ = ["TaskDataset", "TaskManager", "TaskSampler"]

_MAX_USELESS_ROUNDS = 10
"""Steps' worth of groups without use after which a step is given up."""


class TaskManager(SlotManager):
    """Takes the place of veRL's agent loops: collects the prompts that veRL opens, with their tasks."""

    def __init__(self) -> None:
        super().__init__()
        self._task_ids: dict[str, str] = {}

    def generate_sequences(self, prompts: TensorDict) -> None:
        """Open a slot for each prompt."""
        names = np.array(list(prompts["uid"]), dtype=object)
        self._task_ids |= zip(map(str, names), map(str, list(prompts["task_id"])), strict=True)
        super().generate_sequences(prompts)

    def take_tasks(self, num_slots: int) -> dict[str, str]:
        """Return the oldest open slots, at most this many, and the task of each."""
        return {name: self._task_ids.pop(name) for name in self.take(num_slots)}


class TaskSampler:
    """Fills veRL's batch with whole groups of our rollouts; its arguments are veRL's.

    A group with fewer than two rewards is replaced. Fields that only engines know, such as routed experts, are in the
    rows. What veRL learns from is recorded, so ``replay`` finds it.

    Raises: BadInputError: veRL trains in another mode, or opens whole batches only.
    """

    def __init__(self, *, trainer_mode: str, refill_fn: Callable[[int], int], **options: object) -> None:
        del options
        if trainer_mode != "sync":
            raise BadInputError(
                f"trainer.v1.trainer_mode {trainer_mode}: expected 'sync' with these plug-ins; set it, or train with"
                " 'agent-layer train --on ray', which has all modes"
            )
        use_own_servers()  # veRL builds its sampler before it launches servers
        self._trainer = cast("PPOTrainerSync", refill_fn.__self__)  # pyright: ignore[reportFunctionMemberAccess]  # its method
        self._config, self._refill = self._trainer.config, refill_fn
        if not self._config.trainer.v1.sampler.sync_refill_failed_groups:
            raise BadInputError(
                "trainer.v1.sampler.sync_refill_failed_groups: expected true, found false; set it, so that veRL opens"
                " another prompt in place of a group that cannot be trained"
            )
        if self._config.trainer.device == "cpu":
            from trainer_adapter.cluster.worker import ClusterWorker  # noqa: PLC0415  # its ranks join without a GPU

            trainer_base.ActorRolloutRefWorker = ClusterWorker  # pyright: ignore[reportPrivateImportUsage]
        self._settings = load_settings()
        self._run, self._model = self._settings.run, Path(self._config.actor_rollout_ref.model.path)
        self._redis: Redis = open_redis(self._settings)
        tasks = read_task_files(self._config.data.train_files, self._settings)
        held_out = list_held_out(self._config.data)
        self._player = RoundPlayer(tasks, self._settings, self._run, held_out=held_out)
        self._publisher = _StepPublisher(self._settings, self._run, self._redis, open_recorder(self._settings))
        self._fleet: EngineFleet | None = None
        self._step = 0
        """Of the weights that the servers hold, as veRL counts."""

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[KVBatchMeta, dict[str, float]]:
        """Return the rows of a batch, and metrics; veRL's name and arguments.

        Raises:
            BadInputError: veRL validates.
            EngineError: no server holds the weights that veRL has sent.
            AgentLayerError: groups do not come, or hardly any can be trained.
        """
        if partition_id != "train":
            raise BadInputError(
                "veRL: expected a training batch, found a validation; set trainer.val_before_train=False and"
                " trainer.test_freq=-1, and run 'agent-layer eval' on held-out tasks"
            )
        version = self._serve(global_steps)
        rollout = self._config.actor_rollout_ref.rollout
        kept: dict[str, GroupIntake] = {}
        num_useless = 0
        while missing := batch_size - len(kept):
            slots = self._take_slots(missing)
            requests = [GroupRequest(task_id, int(rollout.n)) for task_id in slots.values()]
            groups = self._player.play(requests, version, float(rollout.temperature))
            useful = {name: group for name, group in zip(slots, groups, strict=True) if not group.is_void}
            clear_rows(list(slots))
            kept |= useful
            num_useless += len(slots) - len(useful)
            if num_useless >= _MAX_USELESS_ROUNDS * batch_size:
                raise AgentLayerError(
                    f"run {self._run}: expected groups with two rewards, but {num_useless} have fewer; see 'agent-layer"
                    " rollouts' for the causes"
                )
        batch = select_batch((group.samples for group in kept.values()), keep_equal=True)
        self._player.record(batch, global_steps, version)
        rows = write_rows(batch, list(kept), global_steps, float(rollout.temperature))
        self._own_fleet.take_out()
        return rows, {"agent_layer/policy_version": version, "agent_layer/useless_groups": num_useless}

    def _take_slots(self, num_slots: int) -> dict[str, str]:
        """Return slots with their tasks; more are opened where veRL has opened too few."""
        manager = self._trainer.agent_loop_manager
        if not isinstance(manager, TaskManager):
            raise BadInputError(
                f"actor_rollout_ref.rollout.agent.agent_loop_manager_class: expected TaskManager, found"
                f" {type(manager).__name__}; set it to trainer_adapter.cluster.plug_ins.TaskManager"
            )
        slots = manager.take_tasks(num_slots)
        if missing := num_slots - len(slots):
            self._refill(missing)
            slots |= manager.take_tasks(missing)
        return slots

    @property
    def _own_fleet(self) -> EngineFleet:
        if self._fleet is None:
            remove_ended_engines(self._settings, self._redis)  # of a trainer that was killed
            keys = {f"http://{one.server_address}": one.access_key for one in self._replicas}
            self._fleet = EngineFleet(self._settings, self._run, self._redis, self._model, keys, self._find_missed)
        return self._fleet

    @property
    def _replicas(self) -> list[ClusterReplica]:
        return cast("list[ClusterReplica]", self._trainer.llm_server_manager.get_replicas())

    def _serve(self, global_steps: int) -> int:
        """Let gateways send calls to veRL's servers; return the version of their weights.

        A trainer that starts again numbers its versions on, because those of the killed one sampled tokens.
        """
        self._publisher.register_base(self._model)
        self._step = global_steps - 1
        version = self._publisher.newest() if (self._step, self._publisher.newest()) == (0, 0) else None
        if version is None:
            version = self._publisher.register_step(self._model, self._step)
        self._own_fleet.serve(version)
        return version

    def _find_missed(self, number: int) -> Collection[str]:
        """Return the addresses of servers that do not hold the weights of the last step."""
        del number
        ray.get([server.clear_kv_cache.remote() for one in self._replicas for server in one.servers])
        held = {one: ray.get([server.held_weights.remote() for server in one.servers]) for one in self._replicas}
        return [
            f"http://{one.server_address}"
            for one, found in held.items()
            if any(weights.version != self._step for weights in found)
        ]


class _StepPublisher(WeightPublisher):
    """Registers versions whose weights veRL itself sends."""

    def register_step(self, model: Path, step: int) -> int:
        """Register the weights after a step as the next version; return its number."""
        number = self.newest() + 1
        self._register(number, name_location(self._run, number, model), step, None)
        return number
