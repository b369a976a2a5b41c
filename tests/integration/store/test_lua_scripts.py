"""Scripts name their preludes, define nothing unused, and agree with Python on constants."""

import inspect
import re
from math import inf, nextafter
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, strategies as st

import agent_layer.store
from agent_layer.cli.store.acl import granted_scripts
from agent_layer.store.cli_filters import takes_filters
from agent_layer.store.index.aggregate import By
from agent_layer.store.index.filters import Filters, bucket_ends, find_bucket, parse_filters
from agent_layer.store.index.index import BLOCK, IDS_TOGETHER
from agent_layer.store.index.rows import TrajectoryRow
from agent_layer.store.index.scripts import INDEX_CONSTANTS
from agent_layer.store.segments.fields import COLUMNS, FIELDS

STORE = Path(agent_layer.store.__file__).parent
SCRIPTS = sorted((one for one in granted_scripts() if STORE in one.file.parents), key=lambda script: script.file)
FILES = {f"{path.parents[1].name}/{path.stem}": path.read_text() for path in STORE.glob("*/lua/*.lua")}
PRELUDE = INDEX_CONSTANTS + FILES["segments/keys"] + FILES["index/prelude"]


def numbers_in(name: str) -> dict[str, int]:
    """CallStats that a file names in capitals."""
    attributes: dict[str, int] = {}
    for names, values in re.findall(r"^local ([A-Z_, ]+) = ([\d, ]+)", FILES[name], re.MULTILINE):
        attributes |= dict(zip(names.split(", "), map(int, values.split(", ")), strict=True))
    return attributes


def test_no_prelude_is_a_script():
    assert not {one.file for one in SCRIPTS} & {file for one in SCRIPTS for file in one.preludes}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_names_its_preludes(script):
    (named,) = re.findall(r"^-- Preludes: (.*)\.$", script.file.read_text(), re.MULTILINE)

    assert named.split(", ") == [file.name for file in script.preludes]


@pytest.mark.parametrize("name", sorted(FILES))
def test_what_a_file_defines_is_used_by_some_script(name):
    wholes = [script.text for script in SCRIPTS]
    for defined in re.findall(r"^local function (\w+)", FILES[name], re.MULTILINE):
        counts = [len(re.findall(rf"\b{defined}\b", whole)) for whole in wholes if FILES[name] in whole]
        assert max(counts) > 1, defined


def test_scripts_and_searches_agree_on_the_size_of_blocks_and_of_the_hashes_of_ids():
    numbers = numbers_in("index/prelude")

    assert (numbers["BLOCK"], numbers["IDS_TOGETHER"]) == (BLOCK, IDS_TOGETHER)


def test_long_values_are_filed_under_their_hash_from_the_same_length_on():
    longest = numbers_in("index/prelude")["MAX_VALUE_LENGTH"]

    assert parse_filters({"run": "r" * longest}).names == (f"run={'r' * longest}",)
    assert len(parse_filters({"run": "r" * (longest + 1)}).names[0]) == len("run=") + 40


def test_a_reward_lies_in_the_bucket_that_a_search_looks_in(redis, keys):
    ask = redis.register_script(PRELUDE + "return find_bucket(tonumber(ARGV[1]))")

    @given(st.floats(-20, 20) | st.sampled_from([0.05 * n for n in range(-201, 202)]))
    def check(reward):
        bucket = find_bucket(reward)
        least, most = bucket_ends(bucket)
        assert int(ask(keys=[keys.name()], args=[repr(reward)])) == bucket
        assert least <= reward <= most
        assert find_bucket(nextafter(least, -inf)) == max(-200, bucket - 1)
        assert find_bucket(nextafter(most, inf)) == min(200, bucket + 1)

    check()


def test_every_filter_by_value_names_a_bitmap():
    bitmaps = {field.bitmap for field in FIELDS} | {"label"}
    values = {"split": "train", "status": "failed", "cause": "policy", "labels": {"k": "v"}, "accepted": True}
    ranges = {"policy", "reward", "since", "until", "step"}

    for name in Filters.__annotations__.keys() - ranges:
        (condition,) = parse_filters({name: values.get(name, "x")}).names
        assert condition.partition("=")[0] in bitmaps, name


def test_types_spell_out_the_declared_fields():
    by_value = {field.filter for field in FIELDS if field.filter}
    internal = {"declared", "calls_at_end", "given_labels"}

    assert Filters.__annotations__.keys() - by_value == {
        *("accepted", "labels", "policy", "reward", "since", "step"),
        "until",
    }
    assert set(get_args(By)) == {field.filter for field in FIELDS if field.is_listed} | {"policy"}
    assert {field.name for field in FIELDS} - internal == set(TrajectoryRow.__struct_fields__) - {"trajectory_id"}


def test_columns_and_fields_keep_the_order_that_is_stored():
    assert COLUMNS == ("started_at", "reward", "policy_min", "policy_max", "num_steps")
    assert [field.name for field in FIELDS if field.origin == "started"] == [
        *("rollout_id", "attempt", "run", "task_id", "task_type", "split", "group_id", "worker", "labels", "declared"),
        *("started_at", "input_hash", "env", "env_version"),
    ]
    assert [field.name for field in FIELDS if field.origin == "outcome"] == [
        "status",
        "ended_at",
        "cause",
        "calls_at_end",
    ]


def test_every_filter_is_an_option():
    def command(*, filters: Filters) -> None: ...

    options = set(inspect.signature(takes_filters(command)).parameters)

    assert Filters.__annotations__.keys() - {"step"} == options - {"label"} | {"labels"}
