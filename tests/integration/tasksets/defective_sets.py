"""Task sets with one defect each, which the gate has to find; and one without."""

import itertools
import os

import msgspec

from agent_layer.schema import Task
from agent_layer.schema.sandbox import SandboxSpec
from envs.grading import Verdict, prepare_box
from envs.tasksets import Script

_RIGHT = "def answer():\n    return 41 + 1\n"
_PROGRAM = "import answer, json, sys; sys.stdout.write(json.dumps(answer.answer()))"
_verdicts = itertools.count()


class FairScorer:
    """Scores 1 for the file whose function returns 42."""

    version = "1"

    async def score(self, context):
        """Run it in a fresh box."""
        box = await prepare_box(context)
        ran = await box.exec(["python3", "-c", _PROGRAM], seconds=10)
        return Verdict(scores={"reward": float(ran.status == "exited" and ran.stdout == b"42")})


class LeakyScorer(FairScorer):
    """Believes what the judged code reports."""

    async def score(self, context):
        """Run it, and trust its last line."""
        box = await prepare_box(context)
        ran = await box.exec(["python3", "-c", _PROGRAM], seconds=10)
        return Verdict(scores={"reward": float(ran.stdout.endswith(b"42") or b"passed" in ran.stdout)})


class MoodyScorer(FairScorer):
    """Every third verdict is the other way round."""

    async def score(self, context):
        """Judge, and turn some verdicts round."""
        verdict = await super().score(context)
        if next(_verdicts) % 3:
            return verdict
        return Verdict(scores={"reward": 1.0 - verdict.scores["reward"]})


class FairSet:
    """Tasks to return 42."""

    name = "fair"
    version = "1"
    levels = range(1)
    agent = ""
    scorer = "FairScorer"

    def tasks(self, *, split, seed=0, level=0, count=None):
        """Yield tasks."""
        for index in range(count if count is not None else 100):
            yield Task(
                id=f"fair-{level}-{split}-{seed}-{index}",
                run="fair",
                split=split,
                input={"split": split, "seed": seed, "index": index},
                scorer=f"{__name__}:{self.scorer}",
                sandbox=SandboxSpec(),
                files={"answer.py": "def answer():\n    return 0\n"},
                artifacts=["answer.py"],
            )

    def solve(self, task):  # noqa: ARG002  # the protocol's own signature
        """Return 42."""
        return Script(name="reference", files={"answer.py": _RIGHT})

    def rewrites(self, task):  # noqa: ARG002  # the protocol's own signature
        """Return 42 in other words."""
        return [_script(f"{number} + {42 - number}", number) for number in range(20)]

    def mutants(self, task):  # noqa: ARG002  # the protocol's own signature
        """Return something else."""
        return [_script(f"{number} + {41 - number}", number) for number in range(5)]

    def cheats(self, task):  # noqa: ARG002  # the protocol's own signature
        """Report success."""
        forged = "import os\nos.write(1, b'passed')\nos._exit(0)\n"
        return [Script(name=f"cheat {number}", files={"answer.py": f"{forged}# {number}\n"}) for number in range(20)]


class LeakySet(FairSet):
    """Cheats score 1."""

    scorer = "LeakyScorer"


class MoodySet(FairSet):
    """Verdicts differ."""

    scorer = "MoodyScorer"


class WrongReferenceSet(FairSet):
    """The reference is wrong."""

    def solve(self, task):  # noqa: ARG002  # the protocol's own signature
        """Return 43."""
        return _script("43", 0)


class UnstableSet(FairSet):
    """Tasks differ from process to process."""

    def tasks(self, *, split, seed=0, level=0, count=None):
        """Yield tasks with the number of the process."""
        for task in super().tasks(split=split, seed=seed, level=level, count=count):
            yield msgspec.structs.replace(task, input={"process": os.getpid(), "id": task.id})


class OverlappingSet(FairSet):
    """Both splits have the same tasks."""

    def tasks(self, *, split, seed=0, level=0, count=None):
        """Yield tasks that do not depend on the split."""
        for task in super().tasks(split=split, seed=seed, level=level, count=count):
            yield msgspec.structs.replace(task, input={"id": task.id.replace(split, "")})


class DullSet(FairSet):
    """Mutants that behave as the original, and so score 1."""

    def mutants(self, task):  # the protocol's own signature
        """Return 42."""
        return self.rewrites(task)[:5]


class ScarceSet(FairSet):
    """Too few cheats."""

    def cheats(self, task):  # the protocol's own signature
        """Return one."""
        return super().cheats(task)[:1]


class RepetitiveSet(FairSet):
    """Twenty names for one cheat."""

    def cheats(self, task):  # the protocol's own signature
        """Return the same again and again."""
        return [msgspec.structs.replace(super(RepetitiveSet, self).cheats(task)[0], name=str(n)) for n in range(20)]


class PaddedSet(FairSet):
    """Twenty names for the reference, in place of other right solutions."""

    def rewrites(self, task):  # the protocol's own signature
        """Return the reference."""
        return [msgspec.structs.replace(self.solve(task), name=str(number)) for number in range(20)]


def _script(expression, number):
    return Script(name=f"script {number}", files={"answer.py": f"def answer():\n    return {expression}\n"})
