"""A task set of verifiers with an environment of its own, which answers the player turn by turn and rewards it."""

import verifiers.v1 as vf


class GuessData(vf.TaskData):
    hidden: int


class GuessTask(vf.Task[GuessData]):
    @vf.stop
    async def gave_up(self, trace: vf.Trace) -> bool:
        return trace.last_reply == "give up"


class GuessConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig()
    max_guesses: int = 4


class GuessEnv(vf.Env[GuessConfig]):
    async def run(self, task, agents):
        found = False
        async with agents.player.interaction(task) as interaction:
            segment = await interaction.turn()
            for number in range(self.config.max_guesses):
                if segment.terminated:
                    break
                found = segment.last_reply == str(task.data.hidden)
                if found or number == self.config.max_guesses - 1:
                    break
                is_low = segment.last_reply.isdecimal() and int(segment.last_reply) < task.data.hidden
                segment = await interaction.turn("higher" if is_low else "lower")
        interaction.trace.record_reward("found", float(found))


class Guesses(vf.Taskset[GuessTask]):
    def load(self):
        for number in range(20):
            hidden = number * 7 % 16
            yield GuessTask(GuessData(name=f"g{number}", prompt=f"Game {number}: guess 0 to 15.", hidden=hidden))


__all__ = ["GuessEnv", "Guesses"]
