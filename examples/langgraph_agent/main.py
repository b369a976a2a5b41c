"""Runs the travel agent three times, traced: ``python -m examples.langgraph_agent.main``.

The model is the gateway of ``agent-layer up`` if its variables are set, else OPENAI_BASE_URL, else a scripted engine.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module

import tracer
from agent_layer.local import ScriptedEngine, serve_in_thread
from agent_layer.settings import load_settings
from examples.langgraph_agent.script import plan_trip

TRIPS = {"lisbon": ("Lisbon", "USD"), "oslo": ("Oslo", "NOK"), "athens": ("Athens", "JPY")}


@contextmanager
def find_engine() -> Generator[None]:
    """Serve the scripted engine, unless the environment names a model."""
    if load_settings().gateway_url or "OPENAI_BASE_URL" in os.environ:
        yield
        return
    with serve_in_thread(ScriptedEngine(script=plan_trip)) as engine:
        os.environ["OPENAI_BASE_URL"] = f"{engine.url}/v1"
        yield


def main() -> None:
    """Plan three trips, each as one rollout, and print commands that show them."""
    with find_engine():
        agent = import_module("examples.langgraph_agent.agent")  # it reads the model's address at import
        for task, (city, currency) in TRIPS.items():
            price = round(agent.FARES[city] * agent.RATES[currency], 2)
            with tracer.rollout(task=task, task_type="travel", run="example") as rollout:
                state = agent.graph.invoke({"messages": [("user", f"A flight to {city} in {currency}.")]})
                answer = str(state["messages"][-1].content)
                rollout.reward(1.0 if str(price) in answer else 0.0)
            print(f"{rollout.trajectory_id}  {task}: {answer}")
    print(tracer.flush())
    print(
        "agent-layer query --run example --reward 0.5..\n"
        "agent-layer query --run example --task oslo --step 1 --format jsonl\n"
        f"agent-layer show {rollout.trajectory_id}"
    )


if __name__ == "__main__":
    main()
