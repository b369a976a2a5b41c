"""Leaks: what is hidden from people is found, in any nesting and encoding; what is there by chance is not."""

import base64
import codecs
import json
import random
import zlib

import pytest

from agent_layer.schema import Task
from agent_layer.schema.sandbox import SandboxSpec
from envs.script import Script
from envs.tasksets.gate.leaks.contents import list_secrets, list_visible, spell_number
from envs.tasksets.gate.leaks.decoding import find_texts
from envs.tasksets.gate.leaks.search import TaskContents, find_leaks

ENCODINGS = {
    "plain": str,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "urlsafe": lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "base32": lambda text: base64.b32encode(text.encode()).decode(),
    "hex": lambda text: text.encode().hex(),
    "upper hex": lambda text: "0x" + text.encode().hex().upper(),
    "reversed": lambda text: text[::-1],
    "rot13": lambda text: codecs.encode(text, "rot13"),
    "percent": lambda text: "".join(f"%{ord(one):02x}" for one in text),
    "escapes": lambda text: "".join(f"\\u{ord(one):04x}" for one in text),
    "entities": lambda text: "".join(f"&#{ord(one)};" for one in text),
    "spaced": " ".join,
    "codes": lambda text: " ".join(str(ord(one)) for one in text),
    "bits": lambda text: "".join(f"{ord(one):08b}" for one in text),
    "zlib": lambda text: base64.b64encode(zlib.compress(text.encode())).decode(),
    "json": lambda text: json.dumps({"inside": [text]}),
}
ONCE = {"rot13", "spaced", "codes", "entities", "escapes", "percent", "reversed"}
"""Encodings that keep parts of what they are applied to, or that are applied to texts of people."""


def draw_answer(rng, form):
    match form:
        case "number":
            return str(rng.randint(1000, 10**7))
        case "word":
            return "".join(rng.choice("abcdefghijklmnoprstuvw") for _ in range(8))
        case _:
            return rng.choice(["alpha", "bravo", "delta", "kilo"])


def nest(value, path):
    for name in reversed(path):
        value = [value] if name is None else {name: value}
    return value


def contents(tasks):
    return [TaskContents(task.id, list_visible(task), list_secrets(task, answer)) for task, answer in tasks]


def make_task(index, rng, answer, **fields):
    question = f"What is in drawer {rng.randint(10**6, 10**9)}, near {rng.choice('abcdefgh')}?"
    given = {"input": {"question": question}, "grading": {"answer": answer}, **fields}
    if isinstance(extra := given.pop("extra", None), dict):
        given["input"] = {**given["input"], **extra}
    return Task(id=f"t-{index}", run="r", **given), Script(name="reference", result=answer)


@pytest.mark.parametrize("trial", range(40))
def test_a_leak_is_found_in_any_nesting_and_encoding(trial):
    rng = random.Random(trial)
    path = [rng.choice(["meta", "debug", "x", "note", None]) for _ in range(rng.randint(1, 6))]
    path = ["extra", *path]
    chain = [rng.choice(list(ENCODINGS))]
    chain += [name for _ in range(rng.randint(0, 1)) if (name := rng.choice(list(ENCODINGS))) not in ONCE]
    form, place = rng.choice(["number", "word", "few"]), rng.choice(["input", "files", "environment"])
    before = rng.choice(["", "token=", "see: "])

    tasks = []
    for index in range(16):
        answer = hidden = draw_answer(rng, form)
        for name in chain:
            hidden = ENCODINGS[name](hidden)
        hidden = f"{before}{hidden}"
        fields = {
            "input": {"extra": nest(hidden, path)},
            "files": {"files": {"notes.json": json.dumps(nest(hidden, path))}},
            "environment": {"sandbox": SandboxSpec(env={"TOKEN": hidden})},
        }[place]
        tasks.append(make_task(index, rng, answer, **fields))

    leaks = find_leaks(contents(tasks))
    assert leaks, (chain, form, place, before)
    assert len({task for leak in leaks for task in leak.tasks}) >= 8


@pytest.mark.parametrize("trial", range(20))
def test_what_is_there_by_chance_is_no_leak(trial):
    rng = random.Random(trial)
    form = rng.choice(["few", "number", "word"])
    tasks = []
    for index in range(16):
        answer, others = draw_answer(rng, form), [draw_answer(rng, form) for _ in range(6)]
        shown = rng.sample([answer, *others], 7)
        text = f"Here are {', '.join(shown)}; which one is it?"
        tasks.append(make_task(index, rng, answer, input=rng.choice([{"q": text, "options": shown}, text])))

    assert find_leaks(contents(tasks)) == []


def test_one_task_that_tells_a_long_answer_is_found_among_many():
    rng = random.Random(1)
    tasks = []
    for index in range(30):
        answer = f"{rng.getrandbits(100):025x}"
        extra = {"extra": {"log": f"done ({base64.b64encode(answer.encode()).decode()})"}} if index == 17 else {}
        tasks.append(make_task(index, rng, answer, **extra))

    assert [leak.tasks for leak in find_leaks(contents(tasks))] == [["t-17"]]


@pytest.mark.parametrize("answer", ["yes", "1", ""])
def test_a_value_that_all_tasks_share_tells_nothing(answer):
    rng = random.Random(2)
    tasks = [make_task(index, rng, answer, extra={"m": answer, "n": 1}) for index in range(16)]

    assert find_leaks(contents(tasks)) == []


def test_numbers_are_found_as_words_and_in_other_forms():
    rng = random.Random(3)
    for write in (spell_number, lambda number: f"{number:,}", lambda number: f"{number}.0", lambda number: number):
        tasks = []
        for index in range(12):
            number = rng.randint(1000, 10**6 - 1)
            tasks.append(make_task(index, rng, str(number), extra={"hint": write(number)}))
        assert find_leaks(contents(tasks)), write(5)


def test_hidden_tests_among_files_are_found_and_visible_ones_are_not():
    rng = random.Random(4)

    def make(index, *, is_leak):
        cases = [{"args": [rng.randint(1, 99)], "expected": rng.randint(1, 99)} for _ in range(6)]
        shown = cases if is_leak else [{"args": [rng.randint(1, 99)], "expected": rng.randint(1, 99)} for _ in range(6)]
        files = {"work.py": "def f(a): ...", "cases.json": json.dumps({"deep": [shown]})}
        task = Task(id=f"t-{index}", run="r", input="Write f.", grading={"checks": cases}, files=files)
        return task, Script(name="reference", files={"work.py": "def f(a): return a"})

    assert find_leaks(contents([make(index, is_leak=False) for index in range(12)])) == []
    assert len(find_leaks(contents([make(index, is_leak=True) for index in range(12)]))) == 1


def test_deep_and_long_texts_end():
    deep = "[" * 500 + "]" * 500
    task = Task(
        id="t", run="r", input={"a": deep, "b": "QUJD" * 50_000, "c": "%41" * 50_000}, grading="long answer here"
    )

    assert find_leaks(contents([(task, Script(name="r", result="long answer here"))])) == []
    assert sum(1 for _ in find_texts("x" * 10_000)) < 10
