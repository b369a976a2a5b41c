"""A task set of verifiers whose reward is one number, as the gate requires it."""

import verifiers.v1 as vf


class CapitalData(vf.TaskData):
    answer: str


class CapitalTask(vf.Task[CapitalData]):
    @vf.reward
    async def right(self, trace) -> float:
        return float(self.data.answer.lower() in trace.last_reply.lower().split())


WORDS = [
    "amber",
    "birch",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "grove",
    "haven",
    "islet",
    "jetty",
    "knoll",
    "ledge",
    "marsh",
    "nadir",
    "orbit",
]


class Words(vf.Taskset[CapitalTask]):
    def load(self):
        for number in range(120):
            word = f"{WORDS[number % 15]}{number // 15}"
            spelled = "-".join(reversed(word))
            yield CapitalTask(CapitalData(prompt=f"Read backwards, without dashes: {spelled}", answer=word))


__all__ = ["Words"]
