"""Train a LangGraph agent on this machine: ``python examples/train_your_agent.py MODEL STEPS``.

Put your graph, tasks and reward in place of these. A run that was stopped goes on.
"""

import sys

from langchain_openai import ChatOpenAI
from langgraph.graph import MessagesState, StateGraph

from agent_layer.schema import Task, Trajectory
from trainer_adapter import RolloutConfig, train

model = ChatOpenAI(model="policy", base_url="http://of.the.rollout", api_key="too", temperature=1, max_tokens=8)


async def think(state: MessagesState) -> dict[str, object]:
    """Ask the model."""
    return {"messages": [await model.ainvoke(state["messages"])]}


async def answer(state: MessagesState) -> dict[str, object]:
    """Ask for the number alone; the last message is the agent's result."""
    return {"messages": [await model.ainvoke([*state["messages"], ("user", "Now say only the number.")])]}


graph = StateGraph(MessagesState).add_sequence([think, answer]).set_entry_point("think").compile()
tasks = [{"input": f"What is {a} plus {b}?", "grading": str(a + b)} for a in range(1, 5) for b in range(1, 6)]


async def score(task: Task, trajectory: Trajectory, result: object) -> float:
    """Reward the right number, and fewer tokens. The agent never sees ``task.grading``."""
    num_tokens = sum(len(step.action.response_token_ids or []) for step in trajectory.steps)
    return float(task.grading in str(result).split()) - 0.01 * num_tokens


if __name__ == "__main__":  # workers import this file
    rollouts = RolloutConfig(groups_per_step=4, group_size=8)
    train(graph, tasks, score, model=sys.argv[1], steps=int(sys.argv[2]), rollouts=rollouts, report=print)
