"""How often a held-out task is overlooked after it was changed: a table in Markdown, by kind of change.

    .venv/bin/python tests/benchmarks/contamination.py --tasks 100 --seed 0

Questions are prose of 35 to 60 words with a paraphrase by hand; repair tasks are prompts and files of the task set.
"""

import argparse
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parents[2]))

from agent_layer.schema import HeldOutTasks, Task, as_json_object, hold_out
from envs.tasksets import open_taskset

PAIRS = (
    (
        (
            "A bakery sells rolls in bags of six and in bags of nine. On Monday it sold 31 bags with 225 rolls in"
            " them. How many of these bags held six rolls? Answer with one number, and show the two equations"
            " that you solved."
        ),
        (
            "On Monday 225 rolls left a bakery in 31 bags. Some bags contain half a dozen, the others nine. Write"
            " down two equations for this and give the count of the small bags as a single number."
        ),
    ),
    (
        (
            "Write a function that takes a list of intervals, merges those that overlap or touch, and returns the"
            " result in ascending order. An interval is a pair of integers, and its end is not part of it. The"
            " list may be empty, and the function must not change it."
        ),
        (
            "Given half-open integer ranges as tuples, produce a new sorted list in which neighbours that meet or"
            " intersect have been joined. Leave the argument untouched and handle the case without any ranges."
        ),
    ),
    (
        (
            "The web server logs one line per request with a time, an address, a path and a status. Find the ten"
            " addresses with the most failed requests between noon and two in the afternoon, and print each with"
            " its number of failures, most failures first."
        ),
        (
            "From an access log (time, client, path, code on each line) report which ten clients ran into errors"
            " most often from 12:00 to 14:00, with the counts in descending order."
        ),
    ),
    (
        (
            "Two trains leave stations that are 420 kilometres apart at nine in the morning and drive towards"
            " each other. One drives 80 kilometres an hour, the other 60, but the slower one stops for half an"
            " hour on its way. At what time do they meet?"
        ),
        (
            "The distance between two towns is 420 km. At 9:00 a train starts in each of them in the direction of"
            " the other at 60 and at 80 km/h; the first of these pauses 30 minutes. When are they at the same"
            " place?"
        ),
    ),
    (
        (
            "Users report that the settings page forgets the chosen language after a restart. The value is"
            " written to the database, but the page shows English again. Find out where the default replaces the"
            " stored value, mend it, and add a test that fails without your change."
        ),
        (
            "After the application starts again, everybody sees English in the preferences although another"
            " language was saved. Correct the place that overrides what is stored, with a regression test."
        ),
    ),
    (
        (
            "A box has five red, four blue and three green marbles. Somebody takes three marbles out of it"
            " without putting any back. What is the probability that all three have different colours? Give the"
            " result as a fraction in lowest terms."
        ),
        (
            "Draw three times without replacement from a dozen balls: 3 green ones, 4 blue ones, 5 red ones. As a"
            " reduced fraction, how likely is one of each colour?"
        ),
    ),
    (
        (
            "Translate the following recipe from cups and ounces into grams and millilitres, round each amount to"
            " the nearest five, and keep the order of the ingredients. Mention at the end which amounts you could"
            " not convert, and why you could not convert them."
        ),
        (
            "Here is a recipe in American units. Give it in metric ones instead, to multiples of 5, line by line"
            " as it is, followed by a note on everything that has no exact counterpart."
        ),
    ),
    (
        (
            "Implement a cache with a limit on the number of its entries. When it is full, the entry that was not"
            " read for the longest time goes. Reading and writing must take constant time. Expired entries are"
            " never returned, and they go before all others."
        ),
        (
            "Build an LRU store of bounded size with time-to-live: O(1) get and put, stale items count as absent"
            " and are evicted first, then whatever was used least recently."
        ),
    ),
    (
        (
            "In the attached table each row is one order with its customer, date and amount. Which customers"
            " ordered in every month of the last year, and what did each of them spend on average? Sort the"
            " answer by this average, largest first."
        ),
        (
            "Every line of the spreadsheet is a purchase (who, when, how much). List the people who bought"
            " something in each of the past twelve months, with their mean spending, highest at the top."
        ),
    ),
    (
        (
            "Prove that the sum of the first n odd numbers is the square of n. Use induction, state the"
            " hypothesis before you use it, and say in one sentence why the same argument does not work for the"
            " first n even numbers."
        ),
        (
            "Show by induction on n that 1 + 3 + 5 + ... up to n terms equals n squared; formulate the assumption"
            " first. Then explain briefly what breaks if the terms are even."
        ),
    ),
)
_NOISE = "Please solve the following task with care, and explain your steps. "
_WORD = re.compile(r"[^\W\d_]{3,}")
_WHOLE_WORD = re.compile(r"(?<!\w)[^\W\d_]{3,}(?!\w)")
_NUMBER = re.compile(r"\d+")


class Item(msgspec.Struct, frozen=True):
    """A held-out task, and another way to put it where there is one."""

    task: Task
    paraphrase: str | None = None


def read_prompt(item: Item) -> str:
    """Return the prompt of a task."""
    return str(as_json_object(item.task.input)["prompt"])


def on_prompt(change: Callable[[str], str], item: Item) -> Task:
    """Return the task with its prompt changed."""
    fields = as_json_object(item.task.input)
    return msgspec.structs.replace(item.task, input={**fields, "prompt": change(read_prompt(item))})


def on_texts(change: Callable[[str], str], item: Item) -> Task:
    """Return the task with all its texts changed."""
    files = {name: change(text) for name, text in item.task.files.items()}
    return msgspec.structs.replace(on_prompt(change, item), files=files)


def on_largest(change: Callable[[str], str], item: Item) -> Task:
    """Return the task with its longest text changed."""
    files = item.task.files
    if not files:
        return on_texts(change, item)
    name = max(files, key=lambda one: len(files[one]))
    return msgspec.structs.replace(item.task, files={**files, name: change(files[name])})


def replace_words(rng: random.Random, share: float, text: str) -> str:
    """Replace a share of the words, one at least, by others of the same text."""
    found = list(_WORD.finditer(text))
    chosen = {one.start() for one in rng.sample(found, max(1, round(share * len(found))))} if found else set()
    others = sorted({one.group() for one in found})
    return _WORD.sub(lambda one: rng.choice(others)[::-1] if one.start() in chosen else one.group(), text)


def rename(rng: random.Random, share: float, text: str) -> str:
    """Return the text with new names for a share of its different words, one at least, wherever they stand."""
    names = sorted(set(_WORD.findall(text)))
    new = {name: f"{name[::-1]}x" for name in rng.sample(names, max(1, round(share * len(names))))} if names else {}
    return _WORD.sub(lambda one: new.get(one.group(), one.group()), text)


def change_number(rng: random.Random, text: str) -> str:
    """Change one number."""
    if not (found := list(_NUMBER.finditer(text))):
        return text
    chosen = rng.choice(found).start()
    return _NUMBER.sub(lambda one: str(int(one.group()) + 1) if one.start() == chosen else one.group(), text)


def change_form(rng: random.Random, text: str) -> str:
    """Change case, white space, punctuation and emphasis."""

    def change(line: str) -> str:
        marked = _WHOLE_WORD.sub(lambda one: f"**{one.group()}**" if rng.random() < 0.1 else one.group(), line)
        return re.sub(r" +", "  ", marked).upper()

    return "\n\n".join(map(change, text.splitlines())) + "..."


def shuffle_sentences(rng: random.Random, text: str) -> str:
    """Put the sentences, or lines, of a text in another order."""
    parts = text.splitlines() if "\n" in text else re.split(r"(?<=[.?]) ", text)
    rng.shuffle(parts)
    return ("\n" if "\n" in text else " ").join(parts)


def as_chat(item: Item) -> Task:
    """Return the task as chat messages under other names."""
    turn = {"role": "user", "content": [{"type": "text", "text": read_prompt(item)}]}
    rest = {f"other_{name}": one for name, one in as_json_object(item.task.input).items() if name != "prompt"}
    return msgspec.structs.replace(item.task, input={**rest, "chat": [turn]})


def paraphrase(item: Item) -> Task | None:
    """Return the task in other words; None: there are none."""
    if item.paraphrase is None:
        return None
    return msgspec.structs.replace(item.task, input={"prompt": item.paraphrase})


def list_changes(rng: random.Random) -> dict[str, Callable[[Item], Task | None]]:
    """Return the changes by name; None: a task has no such change."""
    replace = msgspec.structs.replace
    return {
        "id, labels, grading, limits": lambda one: replace(
            one.task, id="x", labels={"a": "b"}, grading=1, group_size=4
        ),
        "type, environment, seed": lambda one: replace(one.task, task_type="x", env="x", seed=7),
        "names and order of fields, chat messages": as_chat,
        "case, white space, punctuation, emphasis": partial(on_texts, partial(change_form, rng)),
        "a sentence in front": partial(on_prompt, lambda text: _NOISE + text),
        "one number changed": partial(on_largest, partial(change_number, rng)),
        "one word replaced": partial(on_largest, partial(replace_words, rng, 0.0)),
        "one name replaced everywhere": partial(on_texts, partial(rename, rng, 0.0)),
        "2 % of the words replaced": partial(on_texts, partial(replace_words, rng, 0.02)),
        "10 % of the words replaced": partial(on_texts, partial(replace_words, rng, 0.1)),
        "all names replaced": partial(on_texts, partial(rename, rng, 1.0)),
        "sentences or lines shuffled": partial(on_texts, partial(shuffle_sentences, rng)),
        "paraphrase by hand": paraphrase,
    }


def list_questions() -> list[Item]:
    """Return the questions."""
    return [Item(Task(id=f"q{at}", run="r", input={"prompt": one}), other) for at, (one, other) in enumerate(PAIRS)]


def list_repairs(num: int, level: int) -> list[Item]:
    """Return held-out tasks of the task set ``repair``."""
    return [Item(task) for task in islice(open_taskset("repair").tasks(split="eval", level=level, count=num), num)]


def measure(items: Sequence[Item], seed: int) -> Iterator[tuple[str, str]]:
    """Yield each kind of change, with the levels at which planted tasks are found, and the rate of those missed."""
    held_out = HeldOutTasks([hold_out("test", [one.task for one in items])])
    for name, change in list_changes(random.Random(seed)).items():
        changed = [(one.task, change(one)) for one in items]
        planted = [found for task, found in changed if found is not None and found != task]
        found = Counter(match.level if (match := held_out.find_match(one)) else "missed" for one in planted)
        rate = f"**{found.pop('missed', 0) / len(planted):.0%} missed**" if planted else ""
        yield name, ", ".join([*(f"{level} {num}" for level, num in sorted(found.items())), *filter(None, [rate])])


def count_false(items: Sequence[Item], level: int, num: int) -> str:
    """Return how many tasks of split train are taken for held-out ones."""
    held_out = HeldOutTasks([hold_out("test", [one.task for one in items])])
    others = islice(open_taskset("repair").tasks(split="train", level=level, count=num), num)
    return f"{sum(held_out.find_match(one) is not None for one in others)} of {num:,} found"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=100, help="held-out tasks of the task set, at each level")
    parser.add_argument("--seed", type=int, default=0, help="of the changes")
    chosen = parser.parse_args()
    kinds = {f"{len(PAIRS)} questions": list_questions()}
    kinds |= {f"{chosen.tasks} repairs, level {level}": list_repairs(chosen.tasks, level) for level in (0, 1)}
    columns = [dict(measure(items, chosen.seed)) for items in kinds.values()]
    lines = [["change", *kinds], ["---"] * (1 + len(kinds))]
    lines += [[name, *(column[name] for column in columns)] for name in columns[0]]
    false = [count_false(list(kinds.values())[1 + level], level, 10 * chosen.tasks) for level in (0, 1)]
    lines.append(["none: other tasks, of split train", "", *false])
    sys.stdout.write("".join(f"| {' | '.join(line)} |\n" for line in lines))


if __name__ == "__main__":
    main()
