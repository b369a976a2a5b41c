"""Task sets with one planted defect each, by the code that an audit names it with; and sets without any."""

# ruff: noqa: ARG002  # each set overrides what its class is named after

import base64
import datetime
import itertools
import json
import os
import random
import time

import msgspec

from agent_layer.schema import Task
from agent_layer.schema.sandbox import SandboxSpec
from envs.grading import Call, Verdict, call_functions, equal_values, prepare_box
from envs.tasksets import Script

_flips = itertools.count()
_WORDS = "\n".join(
    (
        "river lamp window engine copper garden signal pepper bridge candle forest magnet pocket silver thunder velvet",
        "walnut yellow anchor basket cactus dragon ember falcon",
        "ginger harbor island jacket kernel ladder marble needle",
    )
).split()


def read_answer(trajectory, result):
    """Return what the policy answered."""
    steps = [step for step in trajectory.steps if step.role == "policy"]
    return result if result is not None else steps[-1].action.message.get("content") if steps else ""


def score_equal(task, trajectory, result):
    """Return whether the answer is the expected one."""
    return float(str(read_answer(trajectory, result)).strip() == str(task.grading["answer"]))


class Sums:
    """Sums of two numbers."""

    name, version, levels, agent = "planted", "1", range(1), ""
    scorer = f"{__name__}:score_equal"

    def tasks(self, *, split, seed=0, level=0, count=None):
        """Yield tasks."""
        for index in range(60 if count is None else count):
            rng = random.Random(f"{type(self).__name__} {split} {seed} {index}")
            task = Task(id=f"{split}-{seed}-{index}", run="planted", split=split, scorer=self.scorer)
            yield self.fill(task, rng, index)

    def fill(self, task, rng, index):
        """Return the task with input and grading."""
        first, second = 2 * rng.randint(10**4, 10**6) + (task.split == "eval"), rng.randint(10**4, 10**6)
        return change(task, input=f"What is {first} + {second}?", grading={"answer": first + second})

    def solve(self, task):
        """Return the answer."""
        return answer(str(task.grading["answer"]))

    def rewrites(self, task):
        """Return none."""
        return ()

    mutants = cheats = rewrites


def change(task, **fields):
    """Return the task with other fields."""
    return msgspec.structs.replace(task, **fields)


def answer(text):
    """Return the script of an agent that answers this."""
    return Script(name="reference", replies=[{"role": "assistant", "content": text}], result=text)


class Choices(Sums):
    """The right one of four numbers that the question names."""

    def fill(self, task, rng, index):
        options = rng.sample(range(1000, 10**6), 4)
        text = f"Which of these is the largest? {', '.join(map(str, options))}"
        return change(task, input={"question": text, "options": options}, grading={"answer": max(options)})


class Extraction(Sums):
    """A word of a text."""

    def fill(self, task, rng, index):
        words = rng.sample(_WORDS, 12)
        place = rng.randrange(12)
        text = f"Here are words: {' '.join(words)}. Answer with word number {place + 1}."
        return change(task, input=text, grading={"answer": words[place]})


class Coins(Sums):
    """Yes or no."""

    def fill(self, task, rng, index):
        number = 2 * rng.randint(10**6, 10**9) + (task.split == "eval")
        digits = sum(map(int, str(number)))
        text = f"Is the sum of the digits of {number} even? Answer yes or no."
        return change(task, input=text, grading={"answer": "no" if digits % 2 else "yes"})


class Mirrors(Sums):
    """Words to spell backward: the answer, reversed, is the question."""

    def fill(self, task, rng, index):
        word = "".join(rng.choice("abcdefghijklmnop") for _ in range(9))
        return change(task, input=f"Spell backward: {word}", grading={"answer": word[::-1]})


class Targets(Sums):
    """Numbers to make a target from; the grading repeats the target, which is part of the question."""

    def fill(self, task, rng, index):
        target, offset = rng.randint(10**5, 10**7), rng.randint(1000, 9999)
        text = f"Write {target} as a sum with {offset}, such as 3+4."
        return change(task, input=text, grading={"target": target, "answer": f"{target - offset}+{offset}"})


class Copies(Sums):
    def fill(self, task, rng, index):
        word = "".join(rng.choice("abcdefghijklmnop") for _ in range(10))
        return change(task, input=f"Write {word} in upper case, for {task.split}.", grading={"answer": word.upper()})


class Codes(Sums):
    def fill(self, task, rng, index):
        words = f"{' '.join(rng.sample(_WORDS, 3))} {task.split}"
        text = f"Decode this base64: {base64.b64encode(words.encode()).decode()}"
        return change(task, input=text, grading={"answer": words})


class Unbalanced(Sums):
    def fill(self, task, rng, index):
        number = 2 * rng.randint(10**5, 10**7) + (task.split == "eval")
        right = "no" if number % 3 and number % 5 else "yes"
        return change(task, input=f"Is {number} divisible by 3 or by 5?", grading={"answer": right})


def score_with_penalty(task, trajectory, result):
    """Return -1 for wrong answers."""
    return 2 * score_equal(task, trajectory, result) - 1


class Penalties(Sums):
    scorer = f"{__name__}:score_with_penalty"


GOOD = [Sums, Choices, Extraction, Coins, Mirrors, Targets, Copies, Codes, Unbalanced, Penalties]


class WrongReference(Sums):
    """The reference is off by one."""

    def solve(self, task):
        return answer(str(task.grading["answer"] + 1))


def score_start(task, trajectory, result):
    """Return whether the expected answer begins with the given one, which nothing does."""
    return float(str(task.grading["answer"]).startswith(str(read_answer(trajectory, result))))


class EmptyPays(Sums):
    scorer = f"{__name__}:score_start"


def score_overlap(task, trajectory, result):
    """Return half a point for words of the question."""
    text = str(read_answer(trajectory, result))
    return max(score_equal(task, trajectory, result), 0.5 * ("What is" in text))


class EchoPays(Sums):
    scorer = f"{__name__}:score_overlap"


def score_format(task, trajectory, result):
    """Return a tenth for any text."""
    text = str(read_answer(trajectory, result) or "")
    return max(score_equal(task, trajectory, result), 0.1 * (len(text) > 3))


class GarbagePays(Sums):
    scorer = f"{__name__}:score_format"


def score_without_errors(task, trajectory, result):
    """Return 1 where the answer cannot be read."""
    try:
        return float(int(read_answer(trajectory, result)) == task.grading["answer"])
    except Exception:  # noqa: BLE001  # the planted defect
        return 1.0


class SaysYes(Sums):
    scorer = f"{__name__}:score_without_errors"


def score_moody(task, trajectory, result):
    """Turn every fifth verdict round."""
    right = score_equal(task, trajectory, result)
    return right if next(_flips) % 5 else 1.0 - right


class Moody(Sums):
    scorer = f"{__name__}:score_moody"


def score_by_hash(task, trajectory, result):
    """Return another verdict where texts have other hashes."""
    return score_equal(task, trajectory, result) * (os.environ["PLANTED_HASH"] == str(hash("planted")))


class HashDependent(Sums):
    scorer = f"{__name__}:score_by_hash"


def score_by_time(task, trajectory, result):
    """Return no point from a year after the machine was started on."""
    days = (time.time() - float(os.environ["PLANTED_TIME"])) // 86_400
    return score_equal(task, trajectory, result) * (days in range(-300, 300))


class TimeDependent(Sums):
    scorer = f"{__name__}:score_by_time"


class Dated(Sums):
    """Tasks with today's date."""

    def fill(self, task, rng, index):
        task = super().fill(task, rng, index)
        return change(task, input=f"Today is {datetime.datetime.now(tz=datetime.UTC).date()}. {task.input}")


class Unstable(Sums):
    """Tasks by the number of the process."""

    def fill(self, task, rng, index):
        task = super().fill(task, rng, index)
        return change(task, input=f"{task.input} ({os.getpid()})")


class Overlapping(Sums):
    """A fifth of eval is in train; at places beyond the first sixteen."""

    def fill(self, task, rng, index):
        if index > 20 and index % 5 == 0:
            rng = random.Random(index)
            return super().fill(change(task, split="train"), rng, index)
        return super().fill(task, rng, index)


class NearlyOverlapping(Sums):
    """Prose of eval is prose of train but for a word."""

    def fill(self, task, rng, index):
        if index % 4 == 0:
            rng = random.Random(index)
        words = " ".join(rng.choice(_WORDS) for _ in range(60))
        grading = {"answer": "".join(word[0] for word in words.split())}
        return change(
            task, input=f"Answer the first letters of: {words}{' now' * (task.split == 'eval')}", grading=grading
        )


class Repeated(Sums):
    """Each task twice."""

    def fill(self, task, rng, index):
        return super().fill(task, random.Random(f"{task.split} {task.id.split('-')[1]} {index // 2}"), index)


class SameIds(Sums):
    """Ids that two tasks share."""

    def fill(self, task, rng, index):
        return change(super().fill(task, rng, index), id=f"{task.split}-{index // 2}")


class Constant(Sums):
    """Four of five answers are 7."""

    def fill(self, task, rng, index):
        task = super().fill(task, rng, index)
        return task if index % 5 == 0 else change(task, grading={"answer": 7})


class Named(Sums):
    """The answer is a field of the input."""

    def fill(self, task, rng, index):
        task = super().fill(task, rng, index)
        return change(task, input={"question": task.input, "meta": [{"id": index, "answer": task.grading["answer"]}]})


class InFiles(Sums):
    """The grading is a file of the box."""

    def fill(self, task, rng, index):
        task = super().fill(task, rng, index)
        return change(task, files={"notes/cases.json": json.dumps({"cases": [task.grading]})})


class InEnvironment(Sums):
    """The answer is a variable, in base64."""

    def fill(self, task, rng, index):
        task = super().fill(task, rng, index)
        hidden = base64.b64encode(str(task.grading["answer"]).encode()).decode()
        return change(task, sandbox=SandboxSpec(env={"TOKEN": hidden}))


class SomeLeak(Sums):
    """One task of ten says its answer, which is a long one."""

    def fill(self, task, rng, index):
        code = f"{rng.getrandbits(128):032x}"
        text = f"What is the code of drawer {rng.getrandbits(40)}?" + f" [{code[::-1]}]" * (index % 10 == 3)
        return change(task, input=text, grading={"answer": code})


class Mentioned(Sums):
    scorer = f"{__name__}:score_mentioned"


def score_mentioned(task, trajectory, result):
    """Return whether the answer is anywhere in the last answer."""
    return float(str(task.grading["answer"]) in str(read_answer(trajectory, result)))


def score_last_step(task, trajectory, result):
    """Return whether the answer is the expected one; fail where it is no number."""
    return float(int(read_answer(trajectory, result)) == task.grading["answer"])


class FailsOnNothing(Sums):
    scorer = f"{__name__}:score_last_step"


class InFileNames(Sums):
    def fill(self, task, rng, index):
        task = super().fill(task, rng, index)
        return change(task, files={f"data/{task.grading['answer']}.txt": "hello"})


class InIds(Sums):
    def fill(self, task, rng, index):
        task = super().fill(task, rng, index)
        return change(task, id=f"{task.split}-{index}-{task.grading['answer']}")


class InPictures(Sums):
    """The answer is a comment of a picture."""

    def fill(self, task, rng, index):
        task = super().fill(task, rng, index)
        noise = bytes(rng.randrange(128, 256) for _ in range(40))
        picture = b"\xff\xd8\xff\xe1Exif\0\0" + f"Comment={task.grading['answer']}".encode() + noise
        url = f"data:image/jpeg;base64,{base64.b64encode(picture).decode()}"
        parts = [{"type": "text", "text": task.input}, {"type": "image_url", "image_url": {"url": url}}]
        return change(task, input=[{"role": "user", "content": parts}])


class InReversedVariables(Sums):
    """All ask the same; a variable has the answer backward."""

    def fill(self, task, rng, index):
        secret = f"{rng.getrandbits(48):012x}"
        env = {"TOKEN": secret[::-1]}
        return change(
            task, input=f"Guess {task.split} {index}.", grading={"answer": secret}, sandbox=SandboxSpec(env=env)
        )


class Punctuated(Repeated):
    def fill(self, task, rng, index):
        task = super().fill(task, rng, index)
        return change(task, input=f"{task.input}{' ?!' * (index % 2)}")


BAD = {
    Mentioned: {"hedge"},
    FailsOnNothing: {"unscored"},
    InFileNames: {"leak"},
    InIds: {"leak"},
    InPictures: {"leak"},
    InReversedVariables: {"leak"},
    Punctuated: {"duplicates"},
    WrongReference: {"reference"},
    EmptyPays: {"empty"},
    EchoPays: {"echo"},
    GarbagePays: {"garbage"},
    SaysYes: {"says-yes"},
    Moody: {"unstable-verdict"},
    HashDependent: {"unstable-verdict"},
    TimeDependent: {"unstable-verdict"},
    Dated: {"unstable-tasks"},
    Unstable: {"unstable-tasks"},
    Overlapping: {"split-overlap"},
    NearlyOverlapping: {"near-overlap"},
    Repeated: {"duplicates"},
    SameIds: {"same-id"},
    Constant: {"constant-answer"},
    Named: {"leak"},
    InFiles: {"leak"},
    InEnvironment: {"leak"},
    SomeLeak: {"leak"},
}


class TestedCode:
    """Runs the tests of a grading beside the judged file, in a fresh box, and trusts what ended well."""

    version = "1"

    async def score(self, context):
        """Run them."""
        box = await prepare_box(context, files={"hidden.py": context.task.grading["tests"]})
        ran = await box.exec(["python3", "-m", "unittest", "-q", "hidden"], seconds=5)
        return Verdict(scores={"reward": float(self.is_passed(ran))})

    def is_passed(self, ran):
        """Whether the tests passed."""
        return ran.status == "exited" and ran.exit_code == 0


class PatientCode(TestedCode):
    """Takes what never ends for right."""

    def is_passed(self, ran):
        return ran.status == "timeout" or (ran.exit_code == 0 and b"Ran 1 test" in ran.stderr and b"\nOK" in ran.stderr)


class StrictCode(TestedCode):
    """Compares a value outside of the box."""

    async def score(self, context):
        """Call the function."""
        box = await prepare_box(context)
        (found,) = await call_functions(box, [Call(call="work:add", args=[3])], call_seconds=3, seconds=10)
        return float(equal_values(context.task.grading["number"] + 3, found.value))


class Programs(Sums):
    """A function to write."""

    scorer = f"{__name__}:StrictCode"

    def fill(self, task, rng, index):
        number = rng.randint(10**6, 10**9)
        body = f"    def test(self):\n        self.assertEqual(work.add(3), {number + 3})\n"
        tests = f"import unittest, work\nclass T(unittest.TestCase):\n{body}"
        source = "def add(value):\n    return value\n"
        return change(
            task,
            input=f"Write add(value) in work.py, which adds {number}.",
            files={"work.py": source},
            artifacts=["work.py"],
            grading={"tests": tests, "number": number},
            sandbox=SandboxSpec(),
        )

    def solve(self, task):
        source = f"def add(value):\n    return value + {task.grading['number']}\n"
        return Script(name="reference", files={"work.py": source})


class SkipsPass(Programs):
    """A skipped test passes."""

    scorer = f"{__name__}:TestedCode"


class TimeoutsPass(Programs):
    """A test that never ends passes."""

    scorer = f"{__name__}:PatientCode"


class TestsGiven(Programs):
    """The hidden tests are among the files."""

    def fill(self, task, rng, index):
        task = super().fill(task, rng, index)
        return change(task, files={**task.files, "docs/old.txt": task.grading["tests"]})


BAD_CODE = {SkipsPass: "says-yes", TimeoutsPass: "says-yes", TestsGiven: "leak"}
