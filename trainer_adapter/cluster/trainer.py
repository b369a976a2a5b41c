"""veRL's trainers with our loop beside them: veRL starts, sleeps and wakes its servers, sends weights and counts steps.

Threads. veRL's thread runs ``fit``. The loop's thread collects groups, as it does without Ray, and hands batches over
(see ``bridge``). One step of veRL: wait for a batch, store its rows, take the servers out of service, put them to
sleep, update, report to the loop, which registers the version, send the weights, put the servers back. Separate servers
serve on during the update.
"""

import asyncio
import os
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import cast

import ray
from omegaconf import DictConfig
from redis import Redis
from transfer_queue import KVBatchMeta
from verl.experimental.agent_loop import AgentLoopManager
from verl.single_controller.ray import RayWorkerGroup
from verl.trainer.ppo.v1.trainer_base import PPOTrainer, register_trainer
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync
from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.debug import marked_timer
from verl.workers.rollout.llm_server import LLMServerManager

from agent_layer.engines import open_engine_registry, remove_ended_engines
from agent_layer.errors import EngineError
from agent_layer.health import Restart, append_restart, restarts_path
from agent_layer.infra import open_redis
from agent_layer.recorder import Recorder
from agent_layer.settings import Settings, load_settings
from trainer_adapter.cluster.bridge import Bridge, RunEnded, UpdateRequest
from trainer_adapter.cluster.end import write_end
from trainer_adapter.cluster.nodes.deaths import Cause, Death, act_on_death, wait_for_death
from trainer_adapter.cluster.nodes.watch import ServerEnd, ServerProcesses, explain_end, join_by_machine
from trainer_adapter.cluster.publisher import ClusterPublisher, RemoteUpdate
from trainer_adapter.cluster.row_store import find_rows
from trainer_adapter.cluster.rows import SlotManager, clear_rows, write_rows
from trainer_adapter.cluster.server import ClusterReplica, HeldWeights
from trainer_adapter.cluster.update import ClusterUpdate
from trainer_adapter.cluster.weights.fleet import EngineFleet
from trainer_adapter.cluster.worker import ClusterWorker
from trainer_adapter.config import ClusterConfig, TrainConfig, load_config
from trainer_adapter.loop import CheckpointDirectory, train_run
from trainer_adapter.verl import PolicyTrainer, UpdateReport, WeightPublisher, check_targets

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false, reportUnusedCoroutine=false, reportUntypedBaseClass=false
# pyright: reportUntypedClassDecorator=false, reportAttributeAccessIssue=false
# veRL carries no types; its coroutines run when they are called.

_LOOK_SECONDS = 0.5
"""Until a dead server is noticed, each call to it fails."""
_END_SECONDS = 60.0
"""From the death of a part until this process ends, too, whatever veRL's thread still waits for."""


def register() -> None:
    """Let veRL know the trainers: importing this module did that."""


class _ModelsOf:
    """The models of a trainer."""

    def __init__(self, trainer: "ClusterTrainer") -> None:
        self._trainer = trainer

    @property
    def actor(self) -> RayWorkerGroup:
        """Return the workers of the trained model."""
        return self._trainer.actor_rollout_wg

    @property
    def reference(self) -> RayWorkerGroup | None:
        """Return the workers of the first weights; None without ``algorithm.kl``."""
        return self._trainer.ref_policy_wg if self._trainer.use_reference_policy else None

    @property
    def num_ranks(self) -> int:
        """Return the number of processes of the trained model."""
        return self._trainer.config.trainer.n_gpus_per_node * self._trainer.config.trainer.nnodes

    @property
    def end_token(self) -> int:
        """Return the token for rows without meaning."""
        return self._trainer.tokenizer.eos_token_id or 0


class ClusterTrainer(PPOTrainer):
    """What all modes share; the modes of veRL follow it in the order of bases."""

    replaces_servers = True
    """Whether a dead server is replaced in place; else the launcher starts the whole trainer again."""

    def __init__(self, config: DictConfig) -> None:
        super().__init__(config)
        own = config.agent_layer
        self._settings: Settings = load_settings()
        self._run_config: TrainConfig = load_config(Path(own.config))
        if lora := self._run_config.lora:
            check_targets(self._run_config.model, lora)
        self._run = self._run_config.run or self._settings.run
        self._stop_path = Path(own.stop)
        self._bridge = Bridge(self._restart_servers)
        self._update = ClusterUpdate(self._run_config, _ModelsOf(self))
        self._redis: Redis = open_redis(self._settings)
        self._is_awake = False
        self._fleet: EngineFleet | None = None
        self._slots: SlotManager | None = None
        self._done: tuple[UpdateRequest, UpdateReport] | None = None
        self._failure: BaseException | None = None
        self._num_restarts = 0
        """Of servers, since the last step."""
        self._last_step: int | None = None
        """Of the run; None: this process did none yet."""
        self._is_sending = False
        """Whether weights are on their way to the servers: veRL waits for ever for one that dies meanwhile."""
        self._cause = Cause()
        """Death of a part that nothing replaces: the launcher starts the whole trainer again."""

    def fit(self, agent_loop_manager: AgentLoopManager) -> None:
        """Train until the loop ends.

        Raises: AgentLayerError: the run is not healthy, its groups do not come, or veRL failed.
        """
        assert isinstance(agent_loop_manager, SlotManager)  # the configuration names it
        self._slots = agent_loop_manager
        remove_ended_engines(self._settings.model_copy(update={"run": self._run}), self._redis)  # of a killed trainer
        keys = _map_keys(cast("list[ClusterReplica]", self._servers.get_replicas()))
        self._fleet = EngineFleet(self._settings, self._run, self._redis, self._run_config.model, keys, self._push)
        is_over, parts = Event(), join_by_machine([*find_rows(), *self.actor_rollout_wg.find_process()])
        loop = Thread(target=self._run_loop, name="training-loop", daemon=True)
        loop.start()
        Thread(target=self._watch_parts, args=(parts, is_over), name="watch", daemon=True).start()
        try:
            super().fit(agent_loop_manager)
            self._bridge.run_actions(until=lambda: False)
        except RunEnded:
            if self._failure is not None:  # of an action that the loop asked of this thread, too
                self._failure = self._cause.wait_behind(self._failure)
        except BaseException as error:
            cause = self._cause.wait_behind(error)
            self._bridge.fail(cause)
            if cause is not error:
                raise cause from error
            raise
        finally:
            is_over.set()
            self._fleet.remove()  # calls wait, for the servers of another start
            loop.join()
        if self._failure is not None:
            raise self._failure

    def on_init_end(self) -> None:
        """Wake the servers, with the first weights."""
        super().on_init_end()
        self._is_awake = True

    def on_train_begin(self) -> None:
        """Open no slots ahead: the feed asks ahead."""

    def on_sample_end(self) -> None:
        """Let gateways hold the calls, then let veRL put its servers to sleep."""
        self._own_fleet.take_out()
        super().on_sample_end()
        self._is_awake = False

    def on_step_end(self) -> None:
        """Report the update, and let the loop decide which version the weights become."""
        if self._done is None:
            return
        request, report = self._done
        self._done = None
        before = self._own_fleet.version
        request.report.set_result(report)
        with marked_timer("update_weights", self.timing_raw, color="red"):
            if report.is_changed:
                self._bridge.run_actions(until=lambda: self._own_fleet.is_serving and self._own_fleet.version != before)
            else:
                self._own_fleet.serve()

    def open_publisher(self, settings: Settings, run: str, redis: Redis, recorder: Recorder) -> WeightPublisher:
        """Return the publisher of the loop."""
        return ClusterPublisher(settings, run, redis, recorder, self._bridge, self._own_fleet, self._hash_weights)

    def open_trainer(self, config: TrainConfig) -> PolicyTrainer:
        """Return the trainer of the loop."""
        del config  # the run's
        return RemoteUpdate(self._bridge, self._update)

    @property
    def _own_fleet(self) -> EngineFleet:
        if self._fleet is None:
            raise RuntimeError("trainer: expected its servers to be known, found none; call fit first")
        return self._fleet

    def _run_loop(self) -> None:
        try:
            train_run(self._run_config, self._settings, self._is_stopped, driver=self)
        except BaseException as error:  # noqa: BLE001  # veRL's thread raises it
            self._failure = error
        finally:
            self._bridge.end()

    def _is_stopped(self) -> bool:
        return self._bridge.has_failed or self._stop_path.exists()

    def _step_once(
        self, metrics: dict[str, object], timing_raw: dict[str, float], sample_batch_size: int
    ) -> KVBatchMeta:
        """Make one update from the next batch of the loop; veRL's steps in between are those of ``ClusterUpdate``."""
        del sample_batch_size
        with marked_timer("gen", timing_raw, color="red"):
            self.on_sample_begin()
            request = self._bridge.next_update()
            self.global_steps, self._num_restarts = request.step + 1, 0
            rows = self._store(request)
            self.on_sample_end()
        with marked_timer("update_actor", timing_raw, color="red"):
            report = self._update.run(request, rows)
        metrics.update({f"update/{name}": value for name, value in report.metrics.items()})
        self._done, self._last_step = (request, report), request.step + 1
        return rows

    def _store(self, request: UpdateRequest) -> KVBatchMeta:
        """Store the rows of a batch under the slots that veRL opened, oldest first; more are opened where there are
        more groups.
        """
        slots = self._slots
        assert slots is not None  # set by fit
        names = slots.take(request.batch.num_groups)
        if missing := request.batch.num_groups - len(names):
            self._add_prompts_to_generate(missing)
            names += slots.take(missing)
        clear_rows([*names, *slots.take_all()])
        return write_rows(request.batch, names, self.global_steps)

    def _watch_parts(self, parts: Sequence[ServerProcesses], is_over: Event) -> None:
        """End the workers, and then this process, once a part has died that nothing replaces.

        What veRL's thread waits for raises then, or waits for ever: for a server that takes weights, for rows, for a
        rank that takes part in a collective operation.
        """
        looks = [self._look_at_servers, *(partial(_look_at, part) for part in parts)]
        if (death := wait_for_death(looks, lambda: is_over.wait(_LOOK_SECONDS))) is None:
            return
        error = EngineError(f"{death.why}; the whole trainer starts again")
        self._cause.name(error)
        kills = (partial(ray.kill, worker) for worker in self.actor_rollout_wg.workers)
        act_on_death([partial(self._hold_calls, death.urls), *kills])
        if not is_over.wait(_END_SECONDS):
            act_on_death([partial(write_end, self._stop_path.parent, error)])  # a full disk keeps no process alive
            os._exit(1)

    def _look_at_servers(self) -> Death | None:
        is_sending = self._is_sending
        if self.replaces_servers and not is_sending:
            return None
        if not (dead := self._dead_servers()):
            return None
        when = "while weights were sent" if is_sending else "and is not replaced in this mode"
        return Death(f"{_explain(dead)} {when}", tuple(f"http://{one.server_address}" for one in dead))

    def _hold_calls(self, urls: Sequence[str]) -> None:
        """Let calls to dead servers wait."""
        registry = open_engine_registry(self._settings, self._redis)
        for engine in filter(None, map(registry.read, urls)):
            registry.mark_ended(engine)

    def _dead_servers(self) -> "dict[ClusterReplica, ServerEnd]":
        """Return the servers that have died, and what ended."""
        replicas = cast("list[ClusterReplica]", self._servers.get_replicas())
        return {one: end for one in replicas if (end := one.find_end())}

    def _restart_servers(self) -> None:
        """Start servers in place of those that died. Called while veRL's thread waits, so the weights are whole.

        Raises: EngineError: they are not replaced, or died too often; the launcher starts the whole trainer again.
        """
        if self._cause.death is not None:
            raise self._cause.death
        if self._fleet is None or not self._fleet.is_serving or not self.replaces_servers:
            return
        manager = self._servers
        replicas = cast("list[ClusterReplica]", manager.get_replicas())
        dead = self._dead_servers()
        if not dead:
            return
        died = _explain(dead)
        if any(end.is_machine for end in dead.values()):
            raise EngineError(f"{died}, with its part of the trained model; the whole trainer starts again")
        most = (self._run_config.cluster or ClusterConfig()).restarts
        self._num_restarts += 1
        if self._num_restarts > most:
            raise EngineError(f"{died}; it was replaced {most} times without a new step (cluster.restarts)")
        newest = CheckpointDirectory(self._settings, self._run).newest()
        loaded = newest[1].step if newest else 0
        restart = Restart(
            at=time.time(),
            what=", ".join(f"engine http://{one.server_address}" for one in dead),
            why=", ".join(end.why for end in dead.values()),
            from_step=loaded if self._last_step is None else self._last_step,
            number=self._num_restarts,
            most=most,
        )
        append_restart(restarts_path(self._settings, self._run), restart)
        gone = [one.server_address for one in dead]

        def relaunch() -> dict[str, str]:
            asyncio.run(_relaunch(list(dead)))
            manager.server_handles = [one.server_handle for one in replicas]
            manager.server_addresses = [one.server_address for one in replicas]
            balancer = manager.global_load_balancer
            ray.get(balancer.remove_servers.remote(gone))
            ray.get(balancer.add_servers.remote({one.server_address: one.server_handle for one in dead}))
            self.actor_rollout_wg.forget_server()
            return _map_keys(dead)

        self._fleet.replace([f"http://{address}" for address in gone], relaunch)

    @property
    def _servers(self) -> LLMServerManager:
        return self.llm_server_manager

    def _push(self, number: int) -> list[str]:
        """Send the trained weights to all servers; return the addresses of those that do not confirm to hold them."""
        self._is_sending = True
        self.send_weights(number)
        replicas = cast("list[ClusterReplica]", self._servers.get_replicas())
        servers = [server for replica in replicas for server in replica.servers]
        ray.get([server.clear_kv_cache.remote() for server in servers])  # what other weights computed
        found = self._hash_weights()
        sent = HeldWeights(number, frozenset([] if found is None else [found]))
        missed = [f"http://{replica.server_address}" for replica in replicas if not replica.holds(sent)]
        self._is_sending = False
        return missed

    def _hash_weights(self) -> str | None:
        """Return the hash of the trained weights, which the servers confirm; None on GPUs, where none does."""
        return self.actor_rollout_wg.hash_weights()[0] if self.config.trainer.device == "cpu" else None

    def send_weights(self, number: int) -> None:
        """Send the trained weights to all servers; no call is in flight."""
        if self._is_awake:
            self.checkpoint_manager.sleep_replicas()
        self.checkpoint_manager.update_weights(number)
        self._is_awake = True

    def _load_checkpoint(self) -> None:
        """Begin at the first weights: the loop loads its newest checkpoint."""
        self.global_steps = 0

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        worker = ray.remote(ClusterWorker)
        self.role_worker_mapping = dict.fromkeys(self.role_worker_mapping, worker)


def _map_keys(replicas: "Iterable[ClusterReplica]") -> dict[str, str]:
    """Return the key of each server by its address."""
    return {f"http://{one.server_address}": one.access_key for one in replicas}


def _look_at(part: ServerProcesses) -> Death | None:
    end = explain_end(part)
    return None if end is None else Death(end.why)


def _explain(dead: "dict[ClusterReplica, ServerEnd]") -> str:
    return ", ".join(f"engine http://{one.server_address}: {end.why}" for one, end in dead.items())


async def _relaunch(replicas: Sequence[ClusterReplica]) -> None:
    await asyncio.gather(*(replica.relaunch() for replica in replicas))


@register_trainer("agent_layer_sync")
class SyncTrainer(ClusterTrainer, PPOTrainerSync):
    """Collocated, strictly on-policy."""


@register_trainer("agent_layer_colocate_async")
class ColocateAsyncTrainer(ClusterTrainer, PPOTrainerColocateAsync):
    """Collocated; rollouts pause at their next call while the policy is trained, and go on under the new weights."""

    def send_weights(self, number: int) -> None:  # noqa: D102  # see the base
        super().send_weights(number)
        self.checkpoint_manager.resume_generation_replicas()


@register_trainer("agent_layer_separate_async")
class SeparateAsyncTrainer(ClusterTrainer, PPOTrainerSeparateAsync):
    """Fully asynchronous: servers have devices of their own, and calls wait only while weights are sent."""

    replaces_servers = False  # veRL's workers beside a server keep its handle

    def on_sample_end(self) -> None:
        """Let the servers serve: they share nothing with the workers."""
        PPOTrainerSeparateAsync.on_sample_end(self)

    @property
    def _servers(self) -> LLMServerManager:
        return self.standalone_server_manager

    def send_weights(self, number: int) -> None:  # noqa: D102
        self.standalone_checkpoint_manager.update_weights(number)
