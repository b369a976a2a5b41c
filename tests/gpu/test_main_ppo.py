"""veRL's own trainer on this machine's GPUs, or on its CPU: needs vLLM and Ray."""

from importlib.util import find_spec

import msgspec
import pytest

from agent_layer.health.progress import progress_path, read_progress

from ..job import ray_runs

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # torch, ray and veRL warn of each other
    pytest.mark.timeout(900),
    pytest.mark.long,
]


def test_main_ppo(report, tmp_path):
    """Stock main_ppo makes a step and a checkpoint, and goes on from it."""
    if missing := [name for name in ("ray", "vllm", "transfer_queue") if find_spec(name) is None]:
        pytest.skip(f"expected {', '.join(missing)}, which veRL starts, found none")
    config = ray_runs.configure(tmp_path, 1, checkpoint_steps=1)
    settings = ray_runs.train_on_ray(tmp_path, config)
    ray_runs.train_on_ray(tmp_path, msgspec.structs.replace(config, steps=2))

    steps = [
        (one.step, one.metrics["grad_norm"], one.metrics["logprob_gap"])
        for one in read_progress(progress_path(settings, ray_runs.RUN))
    ]
    gap = max(one[2] for one in steps)
    numbers = [one[0] for one in steps]
    report(f"steps {numbers}, the second after a resume", "[1, 2]", numbers == [1, 2])
    report(f"trainer and vLLM differ by {gap:.1e}", "0.05", gap < 0.05)
