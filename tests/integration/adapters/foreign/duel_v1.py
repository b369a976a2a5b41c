"""A task set of verifiers that two agents play."""

import verifiers.v1 as vf


class DuelTask(vf.Task[vf.TaskData]):
    pass


class DuelConfig(vf.EnvConfig):
    white: vf.AgentConfig = vf.AgentConfig()
    black: vf.AgentConfig = vf.AgentConfig()


class DuelEnv(vf.Env[DuelConfig]):
    async def run(self, task, agents):
        await agents.white.run(task)
        await agents.black.run(task)


class Duels(vf.Taskset[DuelTask]):
    def load(self):
        yield DuelTask(vf.TaskData(prompt="Play."))


__all__ = ["DuelEnv", "Duels"]
