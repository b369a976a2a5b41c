"""An environment of several turns, of the API of verifiers before 0.4."""

import verifiers as vf


class Game(vf.MultiTurnEnv):
    async def env_response(self, messages, state):
        return [{"role": "user", "content": "Again."}]


def load_environment():
    return Game(rubric=vf.Rubric(funcs=[lambda completion: 1.0]))
