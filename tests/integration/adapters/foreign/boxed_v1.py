"""Task sets of verifiers that cannot be carried: one needs a container, the environment of the other two players."""

import verifiers.v1 as vf


class BoxedTask(vf.Task[vf.TaskData]):
    NEEDS_CONTAINER = True

    @vf.reward
    async def done(self, trace) -> float:
        return 1.0


class Boxed(vf.Taskset[BoxedTask]):
    def load(self):
        yield BoxedTask(vf.TaskData(prompt="Build it."))


__all__ = ["Boxed"]
