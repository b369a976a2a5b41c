"""Command with which people judge stored trajectories: ``reward``."""

from typing import Annotated

import typer

from agent_layer.cli.ui.links import print_step_link
from agent_layer.errors import BadInputError
from agent_layer.schema import Reward
from agent_layer.store import Store, open_store

_NO_SCORE = "none"


app = typer.Typer(add_completion=False)


@app.command(context_settings={"ignore_unknown_options": True})  # a score below 0 looks like an option
def reward(
    context: typer.Context,
    trajectory: Annotated[str, typer.Argument(help="Its id, as 'query' lists it.")],
    score: Annotated[str, typer.Argument(help="A number; 'none' withdraws the earlier score.")],
    *,
    name: Annotated[str, typer.Option(help="Which of the task's rewards.")] = "reward",
    step: Annotated[int | None, typer.Option(min=0, help="Judge this step, not the rollout.")] = None,
    agent: Annotated[str | None, typer.Option(help="Judge this agent, not the rollout.")] = None,
    comment: Annotated[str | None, typer.Option(help="Reason for the score.")] = None,
    reward_id: Annotated[str | None, typer.Option("--id", help="Id of the reward; one id counts once.")] = None,
) -> None:
    """Reward a trajectory, or a step or an agent of it. Earlier rewards stay, superseded."""
    store = open_store(context.obj)
    given = store.reward(
        trajectory, _read_score(score), name=name, step=step, agent=agent, comment=comment, reward_id=reward_id
    )
    store.writer.await_shipped(f"reward of trajectory {trajectory!r}")
    for line in _report(store, given):
        typer.echo(line)
    print_step_link(context.obj, trajectory, step)


def _read_score(text: str) -> float | None:
    if text.lower() == _NO_SCORE:
        return None
    try:
        return float(text)
    except ValueError as error:
        raise BadInputError(f"reward: expected a number or '{_NO_SCORE}' as the score, found {text!r}") from error


def _report(store: Store, given: Reward) -> list[str]:
    """Return lines that report what the reward changed, and whether it counts."""
    row, trajectory = store.row(given.trajectory_id), store.get(given.trajectory_id, blobs=False)
    replaced = next((one for one in trajectory.rewards if one.reward_id == given.supersedes), None)
    before = "" if replaced is None else f", {_shown(replaced.score)} by {replaced.source} before"
    lines = [f"{given.trajectory_id}: {given.name} = {_shown(given.score)}{before}; its reward is {_shown(row.reward)}"]
    declared = trajectory.started.rewards if trajectory.started else {}
    if given.scope == "rollout" and declared and given.name not in declared:
        lines.append(f"{given.name!r} is kept but does not count: the task declares {', '.join(sorted(declared))}")
    return lines


def _shown(score: float | None) -> str:
    return "null" if score is None else f"{score:g}"
