"""A program: updates of recorded batches by veRL's workers on a Ray of its own, without servers; prints their metrics.

ray_update.py HOME        HOME has ``train.json`` and ``batches``; writes ``found.json``
"""

import json
import pickle
import sys
from concurrent.futures import Future
from pathlib import Path

import ray
import transfer_queue as tq
from omegaconf import OmegaConf
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from verl.single_controller.ray.base import create_colocated_worker_cls
from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

from trainer_adapter.cluster.bridge import UpdateRequest
from trainer_adapter.cluster.overrides import compose_config, verl_overrides
from trainer_adapter.cluster.rows import clear_rows, write_rows
from trainer_adapter.cluster.update import ClusterUpdate
from trainer_adapter.cluster.worker import ClusterWorker
from trainer_adapter.config import load_config


class Workers:
    """The trained model and its reference, each in the same processes."""

    end_token = 1

    def __init__(self, config, num_ranks: int) -> None:
        roles = {
            role: RayClassWithInitArgs(cls=ray.remote(ClusterWorker), config=config, role=role)
            for role in ("actor", "ref")
        }
        pool = RayResourcePool([num_ranks], use_gpu=True, name_prefix="pool", max_colocate_count=3)
        joined = create_colocated_worker_cls(class_dict=roles)
        found = RayWorkerGroup(resource_pool=pool, ray_cls_with_init=joined, device_name="cpu").spawn(roles)
        self.actor, self.reference, self.num_ranks = found["actor"], found["ref"], num_ranks
        for one in (self.actor, self.reference):
            one.init_model()


def run(home: Path) -> list[dict[str, float]]:
    """Return the metrics of each batch's update."""
    config = load_config(home / "train.json")
    options = compose_config(verl_overrides(config, home, num_groups=2, on_cpu=True))
    options.transfer_queue.enable = True
    OmegaConf.resolve(options)
    environment = OmegaConf.merge(get_ppo_ray_runtime_env(options), {"env_vars": {"TRANSFER_QUEUE_ENABLE": "1"}})
    start = OmegaConf.to_container(options.ray_kwargs.ray_init)
    ray.init(**{**start, "runtime_env": OmegaConf.to_container(environment)})
    try:
        tq.init(options.transfer_queue)
        update = ClusterUpdate(config, Workers(options.actor_rollout_ref, config.cluster.gpus_per_node))
        found = []
        for number, batch in enumerate(pickle.loads((home / "batches").read_bytes())):
            rows = write_rows(batch, [f"slot{number}{name}" for name in dict.fromkeys(batch.group_ids)], number + 1)
            report = update.run(UpdateRequest(batch, 0, 1, Future()), rows)
            found.append(report.metrics | {"entropy": report.entropy})
            clear_rows(rows.keys)
        return found
    finally:
        tq.close()
        ray.shutdown()


if __name__ == "__main__":
    home = Path(sys.argv[1])
    (home / "found.json").write_text(json.dumps(run(home)))
