"""A task set of verifiers that a model judges."""

import verifiers.v1 as vf


class PoliteJudge(vf.Judge[str, vf.JudgeConfig]):
    prompt = "Is this polite? Answer A (yes) or B (no).\n{reply}"


class ThanksTask(vf.Task[vf.TaskData]):
    @vf.reward
    async def polite(self, trace) -> float:
        judged = await PoliteJudge().evaluate(trace=trace, reply=trace.last_reply)
        return float(vf.parse_judge_choice(judged.text, ("A", "B")) == "A")


class Thanks(vf.Taskset[ThanksTask]):
    def load(self):
        for number in range(3):
            yield ThanksTask(vf.TaskData(prompt=f"Write {number + 1} lines of thanks."))


__all__ = ["Thanks"]
