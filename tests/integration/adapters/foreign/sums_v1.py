"""A task set of verifiers in one turn, with two weighted rewards and a metric."""

import verifiers.v1 as vf


class SumData(vf.TaskData):
    answer: str


class SumTask(vf.Task[SumData, vf.State, vf.TaskConfig]):
    @vf.reward(weight=0.75)
    async def right(self, trace) -> float:
        return float(trace.last_reply.split()[-1:] == [self.data.answer])

    @vf.reward(weight=0.25)
    async def short(self, trace) -> dict[str, float]:
        return {"terse": float(0 < len(trace.last_reply) <= 12)}

    @vf.metric
    async def length(self, trace) -> float:
        return len(trace.last_reply)


class SumConfig(vf.TasksetConfig):
    num: int = 60
    factor: int = 3


class Sums(vf.Taskset[SumTask, SumConfig]):
    def load(self):
        for number in range(self.config.num):
            other = number * self.config.factor % 11
            yield SumTask(
                SumData(
                    prompt=f"What is {number} + {other}?",
                    system_prompt="Answer with the number only.",
                    answer=str(number + other),
                ),
                self.config.task,
            )


__all__ = ["Sums"]
