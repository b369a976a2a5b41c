"""The table of keys: each name that code or access rules use is in it, and the page of keys says what it says."""

import inspect
from pathlib import Path

import pytest

from agent_layer.cli.store.acl import ROLES, acl_rules
from agent_layer.infra.redis.key_table import KEY_FAMILIES, describe_lost, find_families, table_lines
from agent_layer.infra.redis.keys import Keys

KEYS = Keys("n")
PAGE = Path(__file__).parents[3] / "docs" / "internals" / "redis-keys.md"


def list_names():
    """Return a key from each method of ``Keys``, with made-up names."""
    for name, member in inspect.getmembers(Keys):
        if isinstance(member, property):
            yield getattr(KEYS, name)
        elif inspect.isfunction(member) and not name.startswith("_") and name not in ("name", "queue"):
            wanted = [one for one in inspect.signature(member).parameters.values() if one.name != "self"]
            extra = ["waiting"] if any(one.kind is one.VAR_POSITIONAL for one in wanted) else []
            names = [one for one in wanted if one.kind is not one.VAR_POSITIONAL]
            yield member(KEYS, *(["x:y"] * len(names)), *extra)


@pytest.mark.parametrize("key", list(list_names()))
def test_every_key_that_code_names_is_declared(key):
    assert find_families(KEYS, key)


def test_a_key_that_nobody_declared_is_found_out():
    assert find_families(KEYS, KEYS.name("engine")) == []
    assert find_families(KEYS, KEYS.queue("new")) == []


@pytest.mark.parametrize("role", ROLES)
def test_rights_reach_declared_keys_only(role):
    granted = [rule.lstrip("%R~").removeprefix(KEYS.name("")) for rule in acl_rules(role, KEYS) if "~" in rule]
    names = [one.replace("*", "x:y:z:w:v") for one in granted if one and one != KEYS.name()]
    begins = {family.pattern.partition(":")[0] for family in KEY_FAMILIES}

    assert [one for one in names if one.partition(":")[0] not in begins] == []


def test_each_family_is_declared_once_and_what_is_lost_is_said():
    assert len({family.pattern for family in KEY_FAMILIES}) == len(KEY_FAMILIES)
    assert [family for family in KEY_FAMILIES if family.loss and family.fate != "lost"] == []
    assert "leases" in describe_lost()


@pytest.mark.parametrize("fate", ["rebuilt", "announced", "lost"])
def test_the_page_of_keys_is_the_table(fate):
    text = PAGE.read_text()

    assert "\n".join(table_lines(fate)) in text, "\n".join(["write this into the page:", *table_lines(fate)])
    assert text.count("| `") == len(KEY_FAMILIES)
