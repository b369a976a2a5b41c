"""Train a LangGraph agent with tools on this machine: ``python examples/train_your_agent.py MODEL STEPS``.

Put your graph, tasks and reward in place of these. A run that was stopped goes on.
"""

import sys

from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from agent_layer.schema import Task, Trajectory
from trainer_adapter import RolloutConfig, train


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


model = ChatOpenAI(model="policy", base_url="http://of.the.rollout", api_key="too", temperature=1, max_tokens=96)
tools = [add, multiply]


def ask(state: MessagesState) -> dict[str, object]:
    """Ask the model, which may call tools; the last message is the agent's result."""
    return {"messages": [model.bind_tools(tools).invoke(state["messages"])]}


graph = StateGraph(MessagesState).add_node(ask).add_node("tools", ToolNode(tools)).add_edge(START, "ask")
graph = graph.add_conditional_edges("ask", tools_condition).add_edge("tools", "ask").compile()
tasks = [{"input": f"What is {a} times {b}?", "grading": str(a * b)} for a in range(1, 5) for b in range(1, 6)]


async def score(task: Task, trajectory: Trajectory, result: object) -> float:
    """Reward the right number, and fewer tokens. The agent never sees ``task.grading``."""
    num_tokens = sum(len(step.action.response_token_ids or []) for step in trajectory.steps)
    return float(task.grading in str(result).split()) - 0.001 * num_tokens


if __name__ == "__main__":  # workers import this file
    rollouts = RolloutConfig(groups_per_step=4, group_size=8)
    train(graph, tasks, score, model=sys.argv[1], steps=int(sys.argv[2]), rollouts=rollouts, report=print)
