"""A task set of verifiers whose environment plays each task twice, to compare the two."""

import verifiers.v1 as vf


class PairTask(vf.Task[vf.TaskData]):
    @vf.reward
    async def done(self, trace) -> float:
        return 1.0


class PairConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig()


class PairEnv(vf.Env[PairConfig]):
    async def run(self, task, agents):
        await agents.player.run(task)
        await agents.player.run(task)


class Pairs(vf.Taskset[PairTask]):
    def load(self):
        yield PairTask(vf.TaskData(prompt="Write a short program."))


__all__ = ["PairEnv", "Pairs"]
