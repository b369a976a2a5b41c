"""Servers of OpenEnv, as their users write them: a game by text, and an environment with tools.

python openenv_server.py game|tools PORT
"""

import random
import sys
from uuid import uuid4

import uvicorn
from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field


class GuessAction(Action):
    guess: str = Field(description="a number from 0 to 15")


class GuessObservation(Observation):
    answer: str = ""


class GuessEnvironment(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self._state = State(episode_id=str(uuid4()), step_count=0)
        self._hidden = 0

    def reset(self, seed=None, episode_id=None, **kwargs):
        self._state = State(episode_id=episode_id or str(uuid4()), step_count=0)
        self._hidden = random.Random(seed).randrange(16)
        return GuessObservation(answer=f"Guess a number from 0 to 15, level {kwargs.get('level', 0)}.")

    def step(self, action, **_kwargs):
        self._state.step_count += 1
        number = int(action.guess)
        is_found = number == self._hidden
        reward = 1.0 if is_found else -0.125
        answer = "found" if is_found else "higher" if number < self._hidden else "lower"
        return GuessObservation(answer=answer, reward=reward, done=is_found or self._state.step_count == 5)

    @property
    def state(self):
        return self._state


class ShopEnvironment(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        mcp = FastMCP("shop")
        self._basket = 0

        @mcp.tool
        def buy(item: str, number: int = 1) -> str:
            """Buy an item; return the sum."""
            self._basket += {"tea": 3, "milk": 2}[item] * number
            return f"sum {self._basket}"

        super().__init__(mcp)
        self._state = State(episode_id=str(uuid4()), step_count=0)

    def reset(self, seed=None, episode_id=None, **_kwargs):
        self._basket = 0
        self._state = State(episode_id=episode_id or str(uuid4()), step_count=0)
        return Observation(metadata={"message": f"Buy for {seed % 7 + 5}."})

    def _step_impl(self, action, **_kwargs):
        return Observation(metadata={"error": f"unknown action {action}"})

    def _judge(self, observation):
        self._state.step_count += 1
        if isinstance(observation, CallToolObservation):
            observation.reward = self._basket / 10
            observation.done = self._basket >= 10
        return observation

    def step(self, action, **kwargs):
        return self._judge(super().step(action, **kwargs))

    async def step_async(self, action, **kwargs):
        return self._judge(await super().step_async(action, **kwargs))

    @property
    def state(self):
        return self._state


if __name__ == "__main__":
    kinds = {
        "game": (GuessEnvironment, GuessAction, GuessObservation),
        "tools": (ShopEnvironment, CallToolAction, CallToolObservation),
    }
    app = create_app(*kinds[sys.argv[1]], env_name=sys.argv[1], max_concurrent_envs=16)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
