"""The demo: a main job on this machine, from an untrained model to a plot."""

import signal
import subprocess
import sys
import time
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path

import typer

from agent_layer.errors import AgentLayerError
from agent_layer.health import ProgressReader, progress_path
from agent_layer.settings import Settings
from trainer_adapter.demo.display import Display
from trainer_adapter.demo.evaluation import evaluate_repair
from trainer_adapter.demo.job import RECIPE, make_config, write_tasks
from trainer_adapter.demo.report import print_report
from trainer_adapter.start import Job, open_page, run_job


def run_demo(settings: Settings, steps: int, seed: int, *, fresh: bool, shows_page: bool) -> None:
    """Train until the run has ``steps`` steps, report, and evaluate scripted agents that repair code.

    Args:
        settings: locations of state.
        steps: updates of the whole run, earlier starts included.
        seed: of the untrained weights; each seed is a run of its own.
        fresh: begin a new run instead of continuing the newest of this seed.
        shows_page: open the page of the run, and print its address.

    Raises: AgentLayerError: a process ended early; the message names its log.
    """
    settings = _name_run(settings, seed, fresh=fresh)
    home = settings.dir.absolute() / "runs" / settings.run
    began = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    say = partial(typer.echo, err=True)
    with open_page(settings, settings.run, say) if shows_page else nullcontext():
        with Display(settings.run, steps) as display:
            display.set_phase("writing the untrained model")
            _ensure_model(home / "model", seed)
            config = make_config(home, settings.run, seed, steps)
            write_tasks(home / "tasks.jsonl")
            job = Job(config=config, target=RECIPE.target, slots=RECIPE.slots, max_model_len=64)
            progress = ProgressReader(progress_path(settings, settings.run))
            with suppress(KeyboardInterrupt), run_job(settings, job, display.set_phase) as running:
                display.show_started()
                running.wait(lambda: display.show(progress.read(), running.processes))
                display.set_phase("stopping")
        print_report(settings, display, home, time.monotonic() - began)
        if display.steps and display.steps[-1].step >= steps:
            evaluate_repair(settings, display.console)


def _name_run(settings: Settings, seed: int, *, fresh: bool) -> Settings:
    """Return settings with the run named after its seed; a fresh run gets the next free number."""
    runs = settings.dir / "runs"
    name = f"demo-{seed}"
    taken = [path.name for path in runs.glob(f"{name}*") if path.name.partition(".")[0] == name]
    number = len(taken) if fresh else max(0, len(taken) - 1)
    return settings.model_copy(update={"run": f"{name}.{number}" if number else name})


def _ensure_model(directory: Path, seed: int) -> None:
    """Write the model in a separate process, so that this one does not load torch."""
    if (directory / "config.json").exists():
        return
    command = [sys.executable, "-m", "trainer_adapter.demo.model", str(directory), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AgentLayerError(f"model {directory}: expected to be written, but: {done.stderr.strip()[-600:]}")
