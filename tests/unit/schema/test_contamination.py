"""Fingerprints: a change of form hides no task, and no near-duplicate is overlooked."""

import random
from fractions import Fraction
from functools import cache

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from agent_layer.errors import BadInputError
from agent_layer.schema.contamination.held_out import HeldOutSet, HeldOutTasks, fingerprint_task, hold_out
from agent_layer.schema.contamination.sketch import GRAM_LENGTH, MAX_GRAMS, SketchIndex, measure_jaccard, sketch_text
from agent_layer.schema.contamination.text import normalise_text, read_task_text
from agent_layer.schema.sandbox import SandboxSpec
from agent_layer.schema.task import Task

from ...profiles import num_examples

WORDS = [
    f"{start}{end}" for start in ("red", "count", "file", "sum", "merge", "late") for end in ("", "s", "ing", "er")
]


def task(value=None, **fields):
    return Task(**{"id": "t", "run": "r", "input": value, **fields})


def write_sentence(rng, num_words):
    return " ".join(rng.choices(WORDS, k=num_words))


def change_form(rng, text):
    """Return the same words and signs in another dress."""
    words = [rng.choice([word, word.upper(), f"**{word}**", f"{word},", f'"{word}"']) for word in text.split()]
    spaced = "".join(word + rng.choice([" ", "\n", "\t  ", "\u00a0", " \u200b"]) for word in words)
    return rng.choice(["# ", "- ", "> ", ""]) + spaced + rng.choice(["", ".", "...", "?", " !"])


def wrap(rng, text):
    """Return an input with this text alone, in one of the forms that task sets use."""
    return rng.choice(
        [
            text,
            {"prompt": text},
            {"question": text, "hint": None},
            {"messages": [{"role": "user", "content": text}]},
            [{"role": "user", "content": [{"type": "text", "text": text}]}],
        ]
    )


@given(st.integers(0, 2**32))
@settings(max_examples=num_examples(100), deadline=None)
def test_a_text_in_another_form_is_the_same_text(seed):
    rng = random.Random(seed)
    text = write_sentence(rng, rng.randint(1, 60))
    held_out = HeldOutTasks([hold_out("test", [task(wrap(rng, text))])])

    found = held_out.find_refusal(
        task(wrap(rng, change_form(rng, text)), id="other", seed=rng.choice([None, 3]), env="other", task_type="x")
    )

    assert found is not None
    assert (found.level, found.taskset, found.task_id) == ("text", "test", "t")


@given(st.integers(0, 2**32))
@settings(max_examples=num_examples(100), deadline=None)
def test_fields_may_stand_in_any_order_and_under_any_name(seed):
    rng = random.Random(seed)
    values = [write_sentence(rng, 5), 7, {"deep": [write_sentence(rng, 3), 1.0]}, True]
    before = {f"a{at}": value for at, value in enumerate(values)}
    rng.shuffle(values)
    after = {f"b{at}": value for at, value in enumerate(values)}

    assert fingerprint_task(task(before)).text_hash == fingerprint_task(task(after)).text_hash


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a < b", "a > b"),
        ("3 + 4", "3 - 4"),
        ("3.14", "314"),
        ("a != b", "a = b"),
        ("What is 5!", "What is 5"),
        ("x[0]", "x(0)"),
        ({"op": "add", "type": "sum"}, {"op": "add", "type": "product"}),
        ([1, 2], [2, 1]),
        (-1, 1),
        (True, False),
    ],
)
def test_what_asks_for_something_else_is_another_text(one, other):
    assert fingerprint_task(task(one)).text_hash != fingerprint_task(task(other)).text_hash


@pytest.mark.parametrize("value", [None, "", "  ", [], {}, {"prompt": None}, "..."])
def test_tasks_without_a_text_repeat_each_other_by_input_alone(value):
    held_out = HeldOutTasks([hold_out("test", [task(value, seed=1)])])

    assert held_out.find_match(task(value, seed=2)) is None
    assert held_out.find_match(task(value, seed=1)).level == "input"


def test_a_text_that_held_out_tasks_share_needs_the_same_place():
    prompt, boxes = "Mend the failing test.", [SandboxSpec(image=f"image{at}") for at in range(3)]
    held_out = HeldOutTasks([hold_out("swe", [task(prompt, id=f"h{at}", sandbox=boxes[at]) for at in range(2)])])

    for level, fields in (("input", {}), ("text", {"task_type": "x"})):
        assert held_out.find_match(task(prompt, sandbox=boxes[2], **fields)) is None
        found = held_out.find_refusal(task(prompt, sandbox=boxes[1], **fields))
        assert (found.level, found.task_id) == (level, "h1")
        alone = HeldOutTasks([hold_out("swe", [task(prompt, sandbox=boxes[0])])])
        assert alone.find_refusal(task(prompt, sandbox=boxes[2], **fields)).level == level


@pytest.mark.parametrize(("held", "other"), [(True, 1), (1, True), (False, 0)])
def test_a_task_is_not_taken_for_the_one_before(held, other):
    held_out = HeldOutTasks([hold_out("s", [task(held)])])

    found = [held_out.find_refusal(task(value)) is None for value in (other, held, other, held)]

    assert found == [True, False, True, False]


def test_files_are_text_and_their_names_are_not():
    held_out = HeldOutTasks([hold_out("s", [task("Repair it", files={"a.py": "x = 1", "b.py": "y = 2"})])])

    assert held_out.find_refusal(task("Repair it", files={"z.py": "y = 2", "c.py": "x = 1"})).level == "text"
    assert held_out.find_match(task("Repair it", files={"a.py": "x = 1", "b.py": "y = 3"})) is None


@pytest.mark.parametrize(
    ("declared", "label"),
    [
        ("https://github.com/Django/django.git", "django/django"),
        ("django/django", "git@github.com:django/django"),
        ("ssh://git@example.org/a/b/", "https://example.org/a/b"),
        ("django/django", "django/django@1f2e3d"),
        ("git+https://me:secret@github.com/django/django.git@v5.0", "Django/django"),
    ],
)
def test_a_declared_repository_is_held_out_however_it_is_spelt(declared, label):
    named = HeldOutTasks([hold_out("swe", [], repositories=[declared])])
    of_tasks = HeldOutTasks([hold_out("swe", [task("one", labels={"repository": declared})])])

    for held_out in (named, of_tasks):
        assert held_out.find_refusal(task("other", labels={"repository": label})).level == "repository"
        assert held_out.find_match(task("other", labels={"repository": "other/other"})) is None
        assert held_out.find_match(task("other")) is None


def test_a_task_that_was_not_recorded_is_compared_by_the_hash_of_its_input():
    one = task("text")
    held_out = HeldOutTasks([hold_out("s", [one])])

    assert held_out.find_refusal(None, fingerprint_task(one).input_hash).level == "input"
    assert held_out.find_refusal(None, "other") is None
    assert held_out.find_refusal(None) is None


@cache
def list_grams(text):
    return {text[at : at + GRAM_LENGTH] for at in range(len(text) - GRAM_LENGTH + 1)}


def measure_exactly(one, other):
    """Jaccard index of the 8-grams themselves."""
    first, second = list_grams(one), list_grams(other)
    return Fraction(len(first & second), len(first | second))


def edit(rng, text, num_edits):
    words = text.split()
    for _ in range(num_edits):
        at = rng.randrange(len(words))
        words[at : at + rng.randint(0, 1)] = rng.choices(WORDS, k=rng.randint(0, 2))
    return " ".join(words)


@given(st.integers(0, 2**32))
@settings(max_examples=num_examples(10), deadline=None)
def test_the_near_duplicates_are_those_that_comparing_all_finds(seed):
    rng = random.Random(seed)
    texts = [write_sentence(rng, rng.randint(10, 300)) for _ in range(4)]
    texts += [edit(rng, rng.choice(texts), rng.randint(0, 8)) for _ in range(20)]
    index = SketchIndex([sketch_text(text) for text in texts], 0.9)

    for text in [*texts, *(edit(rng, text, 2) for text in texts)]:
        exact = {at: measure_exactly(text, other) for at, other in enumerate(texts)}
        near = index.find(sketch_text(text))
        assert [at for at, _ in near] == [at for at, value in exact.items() if value >= Fraction(9, 10)]
        assert all(value == pytest.approx(float(exact[at])) for at, value in near)


def test_the_similarity_of_long_texts_is_estimated_and_they_are_found():
    rng = random.Random(1)
    text = "".join(rng.choices("abcdefghij ", k=40_000))
    sketches = [sketch_text(text[:size]) for size in (40_000, 38_000, 30_000)]
    index = SketchIndex([*sketches, sketch_text("short")], 0.9)

    assert {len(sketch) // 8 for sketch in sketches} == {MAX_GRAMS}
    assert [measure_jaccard(sketches[0], one) for one in sketches] == pytest.approx([1.0, 0.95, 0.75], abs=0.03)
    assert [at for at, _ in index.find(sketches[0])] == [0, 1]


@pytest.mark.parametrize("text", ["", "a", "1234567", "12345678"])
def test_short_texts_have_a_gram_unless_they_are_empty(text):
    assert len(sketch_text(text)) == (8 if text else 0)
    assert measure_jaccard(sketch_text(text), sketch_text(text)) == (1.0 if text else 0.0)


def test_near_duplicates_are_listed_and_refused_where_their_set_says_so():
    rng = random.Random(3)
    texts = [write_sentence(rng, 80) for _ in range(3)]
    near = [f"{text} now" for text in texts]
    sets = [
        hold_out("listed", [task(texts[0], id="a")]),
        hold_out("refused", [task(texts[1], id="b")], holdout="near"),
        hold_out("labelled", [task(texts[2], id="c", labels={"holdout": "near"})]),
    ]
    held_out = HeldOutTasks(sets)

    found = [held_out.find_match(task(text)) for text in near]
    assert [(one.level, one.taskset, one.task_id, one.is_refused) for one in found] == [
        ("near", "listed", "a", False),
        ("near", "refused", "b", True),
        ("near", "labelled", "c", True),
    ]
    assert [held_out.find_refusal(task(text)) is None for text in near] == [True, False, False]
    assert all(0.9 <= one.similarity < 1 for one in found)


def test_sets_come_back_from_their_file():
    one = hold_out("s", [task("text", labels={"repository": "a/b"})], holdout="near", repositories=["c/d"])

    assert msgspec.json.decode(msgspec.json.encode(one), type=HeldOutSet) == one


def nest(rng, depth, inner):
    """Return a value inside lists and objects of this depth; what is beside the path is empty or form."""
    for _ in range(depth):
        inner = rng.choice([[inner], {"a": inner}, [None, inner, ""], {"role": "user", "content": inner}])
    return inner


def test_a_nested_input_has_its_text_however_deep_it_is():
    rng = random.Random(3)
    text = write_sentence(rng, 20)
    held_out = HeldOutTasks([hold_out("test", [task(text)])])

    for depth in (rng.randrange(1, 400), 600, rng.randrange(600, 900)):
        assert held_out.find_refusal(task(nest(rng, depth, text), id="other")).level == "text"
    deep = task(nest(rng, 100_000, text), id="deep")
    assert read_task_text(deep) == text.casefold()
    for ask in (fingerprint_task, held_out.find_match):
        with pytest.raises(BadInputError, match="task 'deep': expected an input of at most some hundred levels"):
            ask(deep)


@pytest.mark.parametrize("unit", ["\n", " \n", "!", "?.", "__", "```", "- ", "1,"])
def test_the_time_of_a_text_grows_no_faster_than_its_length(unit):
    assert normalise_text(unit * 40_000 + " end").endswith("end")  # minutes, if it grew with the square


def test_invisible_characters_and_compatibility_forms_hide_nothing():
    assert (
        normalise_text("\ufb01nd\u200b the \u00adsum of \uff14\uff12")
        == normalise_text("Find the SUM of 42")
        == "find the sum of 42"
    )
