"""A player of the guessing game that asks once more, in another conversation: each of its rollouts has two rows."""

from langchain_core.messages import HumanMessage

import tracer
from agent_layer.schema import TaskView
from envs.tasksets.guess_number import agent


async def play(task: TaskView, rollout: tracer.Rollout) -> dict[str, float]:
    """Play one game, then ask for a number below an unknown one."""
    scores = await agent.play(task, rollout)
    await agent.model.ainvoke([HumanMessage("guess"), HumanMessage("lower")])
    return scores
