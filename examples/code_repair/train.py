"""Train a tiny untrained model on level 0 of code repair; it begins at chance, one in nine.

``python -m examples.code_repair.train --seeds 0-2``. All is real: vLLM, the gateway, a worker, veRL, and a scorer
that runs the edited code in a sandbox. Ctrl-C stops it, and the same command goes on.
"""

from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

import msgspec

from agent_layer.health import StepProgress, progress_path, read_progress
from agent_layer.schema import JsonObject, Task
from agent_layer.settings import Settings, load_settings
from envs.evaluation import EvalRequest, evaluate
from envs.tasksets.repair import Repair
from trainer_adapter import AlgorithmConfig, OptimizerConfig, RolloutConfig, Schedule, train
from trainer_adapter.selection import SuccessShare

AGENT = "envs.tasksets.repair:RepairEnvironment"
NUM_TASKS, NUM_STEPS, NUM_HELD_OUT = 12, 40, 24
CHANCE = 1 / 9
"""One of nine answers is right in each of the tasks."""
SAMPLING: JsonObject = {"max_tokens": 1, "temperature": 1.0}
"""An answer is one token of the model, such as ``2b``."""
_SENT = ("id", "task_type", "input", "grading", "scorer", "rewards", "limits", "labels")


def main(arguments: Sequence[str] | None = None) -> None:
    """Train each seed, evaluate it on tasks that it never saw, and draw all of them."""
    options = _parser().parse_args(arguments)
    settings = load_settings()
    runs: dict[int, list[StepProgress]] = {}
    for seed in options.seeds:
        mine = settings.model_copy(update={"run": f"repair-{seed}"})
        runs[seed] = learn(mine, seed, options.steps, is_unchecked=options.unchecked)
        print(
            f"seed {seed}: success {_success(runs[seed][:1]):.2f} in step 1, {_success(runs[seed][-5:]):.3f} at the end"
        )
    if options.held_out:
        for seed, steps in runs.items():
            share = measure_held_out(settings.model_copy(update={"run": f"repair-{seed}"}), steps[-1].policy_version)
            print(f"seed {seed}: {share:.3f} of {NUM_HELD_OUT} tasks with other bugs, which it never saw")
    if options.plot:
        plot(runs, options.plot)


def learn(settings: Settings, seed: int, num_steps: int, *, is_unchecked: bool = False) -> list[StepProgress]:
    """Train until the run has this many steps; return all of them, oldest first."""
    done = read_progress(progress_path(settings, settings.run))
    if len(done) >= num_steps:
        return done
    tasks = list(Repair().tasks(split="train", seed=0, level=0, count=NUM_TASKS))
    return train(
        AGENT,
        [*_lines(tasks)],
        model=_ensure_model(settings, tasks, seed),
        steps=num_steps,
        settings=settings,
        seed=seed,
        rollouts=RolloutConfig(group_size=10, max_staleness=0, curriculum=SuccessShare(floor=0.1)),
        algorithm=AlgorithmConfig(
            name="reinforce++", clip_high=0.28, entropy=Schedule(start=0.05, end=0.0, shape="linear")
        ),
        optimizer=OptimizerConfig(
            learning_rate=Schedule(start=2e-4, end=1e-4, shape="cosine", warmup_steps=10),
            minibatches=2,
            epochs=2,
            betas=(0.9, 0.95),
        ),
        verl={"actor_rollout_ref.actor.optim.override_optimizer_config.eps": 1e-6},  # or Adam makes noise large
        unchecked=is_unchecked,
        report=lambda step: print(f"{settings.run}: step {step.step:2d}  success {step.success or 0:.2f}", flush=True),
    )


def measure_held_out(settings: Settings, version: int) -> float:
    """Return the share of right answers to tasks of split eval, by the weights of a version."""
    weights = settings.dir / "weights" / settings.run / f"{version:06d}"
    request = EvalRequest(
        tasks="repair", agent=AGENT, model=str(weights), level=0, limit=NUM_HELD_OUT, n=4, sampling=SAMPLING
    )
    found = evaluate(settings, request).figures.pass_at_1
    return found.value if found else 0.0


def plot(runs: dict[int, list[StepProgress]], path: Path) -> None:
    """Draw the success of each seed beside chance."""
    import matplotlib as mpl  # noqa: PLC0415  # takes a second

    mpl.use("Agg")  # before pyplot chooses a screen
    from matplotlib import pyplot as plt  # noqa: PLC0415  # the same

    figure, axes = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
    for seed, steps in runs.items():
        means = [_success(steps[max(0, at - 4) : at + 1]) for at in range(len(steps))]
        axes.plot([step.step for step in steps], means, label=f"seed {seed}")
    axes.axhline(CHANCE, color="gray", linestyle=":", label="chance")
    axes.set(xlabel="update of the policy", ylabel="tasks solved, mean of five steps", ylim=(0, 1.02))
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _lines(tasks: Sequence[Task]) -> Iterator[JsonObject]:
    for task in tasks:
        fields: JsonObject = msgspec.to_builtins(task)
        yield {name: fields[name] for name in _SENT} | {"sampling": SAMPLING}


def _ensure_model(settings: Settings, tasks: Sequence[Task], seed: int) -> Path:
    from examples.code_repair.untrained_model import write_model  # noqa: PLC0415  # torch takes seconds

    directory = settings.dir.absolute() / "runs" / settings.run / "model"
    if not (directory / "config.json").exists():
        write_model(directory, [str(msgspec.to_builtins(task.input)["prompt"]) for task in tasks], seed)
    return directory


def _success(steps: Sequence[StepProgress]) -> float:
    return fmean(step.success or 0.0 for step in steps)


def _parser() -> ArgumentParser:
    parser = ArgumentParser(description="train level 0 of code repair; state is kept in AGENT_LAYER_DIR")
    parser.add_argument("--seeds", type=_seeds, default=[0], help="such as 0 or 0-2; each is a run of its own")
    parser.add_argument("--steps", type=int, default=NUM_STEPS, help="updates of each run, earlier starts included")
    parser.add_argument("--held-out", action="store_true", help="evaluate on tasks with other bugs in the end")
    parser.add_argument("--plot", type=Path, help="draw the runs into this file")
    parser.add_argument("--unchecked", action="store_true", help="train without 'agent-layer tasksets check repair'")
    return parser


def _seeds(text: str) -> list[int]:
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


if __name__ == "__main__":
    main()
