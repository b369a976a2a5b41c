"""Environments of a user, which register themselves when Gymnasium imports this module."""

import gymnasium
from gymnasium import spaces


class Echo(gymnasium.Env):
    """Returns each text, and ends at 'bye'."""

    action_space = spaces.Text(8, charset="abcdefghijklmnopqrstuvwxyz ")
    observation_space = spaces.Text(20)

    def reset(self, *, seed=None, options=None):  # noqa: ARG002  # Gymnasium's own signature
        super().reset(seed=seed)
        return "say something", {}

    def step(self, action):
        return f"you said {action}", float(len(action)), action == "bye", False, {}


class Dials(gymnasium.Env):
    """Two dials, and a mapping to look at."""

    action_space = spaces.MultiDiscrete([3, 5])
    observation_space = spaces.Dict({"dials": spaces.MultiDiscrete([3, 5]), "heat": spaces.Box(0, 1, (1,))})

    def reset(self, *, seed=None, options=None):  # noqa: ARG002  # Gymnasium's own signature
        super().reset(seed=seed)
        return self._look(0, 0), {}

    def step(self, action):
        return self._look(*action), float(action[0] * action[1]), False, False, {}

    def _look(self, first, second):
        return {"dials": (first, second), "heat": self.np_random.random(1)}


gymnasium.register("Echo-v0", "text_world:Echo")
gymnasium.register("Dials-v0", "text_world:Dials", max_episode_steps=4)
