"""Search inside trajectories: what is there is found, what was deleted is not, and each segment is read once."""

import json
import random
import subprocess
import sys
from contextlib import suppress
from os import environ

import pytest

from agent_layer.cli.store.acl import acl_rules
from agent_layer.errors import BadInputError, UnreachableError
from agent_layer.infra import open_objects
from agent_layer.schema.ids import new_id
from agent_layer.schema.reward import Reward
from agent_layer.schema.step import Action, Observation, StepState
from agent_layer.schema.task import Task
from agent_layer.store import Store, open_store
from agent_layer.store.maintenance.merge_plan import Limits
from agent_layer.store.text.text_index import match_expression

from ...builders import attempt, call, content
from ...stored import write_segment
from ...waiting import communicate

SEARCH = """
import sys
from agent_layer.store import open_store

page = open_store().search_text("common", limit=500)
print(sorted(one.row.trajectory_id for one in page.items), page.coverage.num_waiting)
"""


def talk(tid, *words, at=1.0, run="r", **started):
    """Two steps: the second shows the first answer again, as a prompt does; a tool answers between."""
    fields = {"input": {"question": f"task {words[0]}"}, "grading": "the hidden answer"}
    prompt = content(tid, json.dumps({"role": "user", "content": f"please {words[0]}"}).encode())
    spoken = {"role": "assistant", "content": f"answer {words[-1]} café"}
    again = content(tid, json.dumps(spoken).encode())
    names = [prompt.hash, again.hash]
    return attempt(
        tid,
        prompt,
        again,
        *call(tid, "a", Action(message=spoken), run=run, at=at + 1, state=StepState(messages=names[:1])),
        Observation(trajectory_id=tid, observation_id=f"{tid}/o", run=run, name="look", at=at + 1.7,
                    call_id=f"{tid}/a", output={"found": f"tool {words[-1]}"}),
        *call(tid, "b", Action(message={"content": "done"}), run=run, at=at + 2, state=StepState(messages=names)),
        at=at, run=run, task=Task(id="t", run=run, **fields), **started,
    )  # fmt: skip


@pytest.fixture
def store(settings):
    return open_store(settings)


def matches(store, text, **wanted):
    return [(one.row.trajectory_id, one.step, one.where) for one in store.search_text(text, limit=100, **wanted).items]


def ids(store, text, **wanted):
    return sorted({one for one, _, _ in matches(store, text, **wanted)})


def test_tasks_prompts_answers_and_tools_are_found_with_their_step(store):
    write_segment(store, *talk("x.0-0", "sum", "seven"))
    write_segment(store, *talk("y.0-0", "product", "eight"))

    assert matches(store, "sum") == [("x.0-0", 0, "message"), ("x.0-0", None, "task")]
    assert matches(store, "SEVEN") == [("x.0-0", 0, "observation"), ("x.0-0", 1, "message")]
    assert matches(store, "cafe eight") == [("y.0-0", 1, "message")]
    assert matches(store, '"tool eight"') == [("y.0-0", 0, "observation")]
    assert ids(store, "prod*") == ["y.0-0"]
    assert matches(store, "sum product") == matches(store, '"eight tool"') == []
    [one] = store.search_text("cafe seven").items
    assert one.snippet == "answer seven café"
    assert [one.snippet[begin:end] for begin, end in one.marks] == ["seven", "café"]
    assert one.row == store.row("x.0-0")


def test_what_only_scorers_see_is_not_in_the_file(store, settings):
    own = {"trajectory_id": "x.0-0", "run": "r"}
    verdict = Reward(**own, reward_id="v", at=9.0, error="expected the hidden answer", comment="hidden, too")
    write_segment(store, *talk("x.0-0", "sum"), verdict)
    write_segment(store, *talk("j.0-0", "is it the hidden answer", run="r:judge"))

    assert ids(store, "sum") == ["x.0-0"]
    assert ids(store, "hidden") == []
    assert files_with(settings, b"please sum") != []
    assert files_with(settings, b"hidden") == []


def files_with(settings, text):
    return [path.name for path in (settings.dir / "text").iterdir() if text in path.read_bytes()]


def test_filters_select_as_in_a_query(store):
    chance = random.Random(3)
    for number in range(40):
        tid = f"x.{number}-0"
        about = {"task_type": chance.choice(["easy", "hard"]), "labels": {"team": chance.choice("ab")}}
        records = talk(tid, "common", at=10.0 * number, run=chance.choice(["r", "s"]), score=chance.random(), **about)
        write_segment(store, *records)
    for filters in (
        {"run": "s"},
        {"task_type": "hard", "run": "r"},
        {"reward": (0.5, None)},
        {"labels": {"team": "a"}, "accepted": True},
        {"since": 100.0, "until": 250.0},
        {"status": "failed"},
        {"step": 1},
    ):
        expected = sorted(row.trajectory_id for row in store.query(limit=100, **filters).items)
        assert ids(store, "common", **filters) == expected, filters
    with pytest.raises(BadInputError, match="filter 'colour'"):
        store.search_text("common", colour="red")


def test_pages_hold_every_trajectory_and_the_newest_first(store):
    for number in range(12):
        name = new_id(lambda number=number: (1_700_000_000 + number) * 10**9)
        write_segment(store, *talk(f"x.{number}-0", "common"), name=name)
    seen, cursor = [], None
    while True:
        page = store.search_text("common", limit=5, cursor=cursor)
        seen += list(dict.fromkeys(one.row.trajectory_id for one in page.items))
        if (cursor := page.cursor) is None:
            break

    assert list(dict.fromkeys(seen)) == [f"x.{number}-0" for number in reversed(range(12))]


class Counted:
    """The objects of a store, with the number of reads of each segment."""

    def __init__(self, objects):
        self._objects, self.read = objects, []

    def get(self, key, offset=0, size=None):
        self.read.append(key)
        return self._objects.get(key, offset, size)

    def __getattr__(self, name):
        return getattr(self._objects, name)


def test_only_new_segments_are_read_and_merged_ones_not_again(store, settings):
    objects = Counted(open_objects(settings))
    counted = Store(settings, store.redis, objects)
    first = [write_segment(store, *talk(f"x.{number}-0", "common")) for number in range(5)]
    counted.texts.update()
    assert all(any(name in key for key in objects.read) for name in first)
    objects.read.clear()
    late = write_segment(store, *talk("y.0-0", "common"))
    counted.texts.update()
    assert {key.rpartition("/")[2] for key in objects.read} == {f"{late}.seg"}
    store.admin.compact(limits=Limits(least_age_seconds=0))
    objects.read.clear()

    coverage = counted.texts.update()

    assert (len(objects.read), coverage.num_segments, coverage.num_waiting) == (1, 1, 0)  # its footer
    assert len(ids(store, "common")) == 6


def test_the_deleted_are_forgotten_to_the_last_word(store, settings):
    write_segment(store, *talk("x.0-0", "abracadabra"))
    write_segment(store, *talk("y.0-0", "common"))
    assert ids(store, "abracadabra") == ["x.0-0"]
    assert files_with(settings, b"abracadabra") != []

    store.admin.delete("x.0-0")  # as another machine would
    assert ids(store, "abracadabra") == []
    assert files_with(settings, b"abracadabra") == []
    store.search_text("common")
    store.delete("y.0-0")
    assert files_with(settings, b"common") == []


def test_the_file_can_be_deleted_or_damaged_at_any_time(store, settings):
    write_segment(store, *talk("x.0-0", "common"))
    found = matches(store, "common")
    [path] = (settings.dir / "text").glob("*.sqlite")
    for path_of in (settings.dir / "text").glob("*.sqlite*"):
        path_of.unlink()
    assert matches(store, "common") == found
    assert path.stat().st_mode & 0o077 == 0

    path.write_bytes(b"not a database" * 1_000)
    assert matches(store, "common") == found

    middle = path.stat().st_size // 2
    with path.open("r+b") as file:
        file.seek(4_096)
        file.write(b"\xff" * (2 * middle - 4_096))
    with suppress(UnreachableError):  # once, where the damage is met
        matches(store, "common")
    assert matches(store, "common") == found


def test_a_full_file_loses_the_oldest_and_says_so(store, settings):
    chance = random.Random(1)
    small = Store(settings.model_copy(update={"text_index_bytes": 1 << 20}), store.redis, store.objects)
    for number in range(30):
        name = new_id(lambda number=number: (1_700_000_000 + number) * 10**9)
        words = " ".join(f"{chance.randrange(16**6):x}" for _ in range(1_200))
        write_segment(store, *talk(f"x.{number}-0", f"common number{number} {words}"), name=name)

    page = small.search_text("common", limit=100)

    found = {one.row.trajectory_id for one in page.items}
    assert 3 <= len(found) < 30
    assert found == {f"x.{number}-0" for number in range(30 - len(found), 30)}
    [sentence] = [one for one in page.coverage.describe() if "AGENT_LAYER_TEXT_INDEX_BYTES" in one]
    assert page.coverage.left_out_before > 1_700_000_000
    assert "2023-11-14T22:1" in sentence
    assert page.coverage.num_unreadable == page.coverage.num_waiting == 0
    assert sum(path.stat().st_size for path in (settings.dir / "text").iterdir()) < 3 << 20


def test_a_limited_time_answers_from_what_is_read(store):
    for number in range(3):
        write_segment(store, *talk(f"x.{number}-0", "common"))

    page = store.search_text("common", seconds=0.0)

    assert (page.items, page.coverage.num_waiting) == ([], 3)
    assert "3 of 3 segments are not in the text index yet" in page.coverage.describe()[0]
    reported = []
    assert store.search_text("common", progress=lambda *done: reported.append(done)).coverage.num_waiting == 0
    assert reported == [(1, 3), (2, 3), (3, 3)]


def test_several_processes_search_at_once(store, settings):
    for number in range(20):
        write_segment(store, *talk(f"x.{number}-0", "common"))
    command = [sys.executable, "-c", SEARCH]
    running = [
        subprocess.Popen(command, env=environ | settings.environment(), stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]

    found = [communicate(process)[0] for process in running]

    expected = sorted(one for one, _, _ in matches(store, "common"))
    assert found == [f"{expected} 0\n"] * 3


def test_a_reader_searches(store, settings, redis):
    write_segment(store, *talk("x.0-0", "common"), *talk("y.0-0", "common", run="s"))
    redis.execute_command("ACL", "SETUSER", "reader", *acl_rules("reader", store.keys, 6.2), ">word")
    redis.execute_command("AUTH", "reader", "word")
    reader = Store(settings, redis, store.objects)

    assert ids(reader, "common") == ["x.0-0", "y.0-0"]
    assert ids(reader, "common", run="s") == ["y.0-0"]


@pytest.mark.parametrize("text", ["", "  ", '""', "-- ** ()", "x" * 1_001, "a " * 33])
def test_no_words_are_refused(store, text):
    with pytest.raises(BadInputError, match="words of letters or digits"):
        store.search_text(text)


HOSTILE = [
    'a"b',
    "a OR b",
    "NEAR(a b)",
    "a:b",
    "*a",
    "a*b",
    '"a',
    "a\0b",
    "-a",
    "{a}",
    "'; --a",
    "^a",
    "\ud800 a",
    "x" * 999,
]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_is_taken_for_an_expression(store, text):
    write_segment(store, *talk("x.0-0", "common"))
    assert matches(store, text) == []


@pytest.mark.parametrize("wanted", [{"limit": 0}, {"limit": 501}, {"cursor": "x"}, {"cursor": "9" * 40}])
def test_pages_that_cannot_be_are_refused(store, wanted):
    with pytest.raises(BadInputError, match="expected"):
        store.search_text("common", **wanted)


def test_words_and_phrases_become_one_expression():
    assert match_expression('hello "two words" pre* a"b') == '"hello" AND "two words" AND "pre"* AND "a b"'
