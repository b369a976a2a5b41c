"""Access rules cover every script and every key; each script declares what its text reaches."""

import re
from pathlib import Path

import pytest

import agent_layer
from agent_layer.cli.main import build
from agent_layer.cli.store.acl import ROLES, acl_rules, granted_scripts
from agent_layer.infra import LuaScript
from agent_layer.infra.redis.keys import Keys

PACKAGE = Path(agent_layer.__file__).parent
SCRIPTS = sorted(granted_scripts(), key=lambda script: script.file)


def test_every_script_is_some_roles_work():
    granted = {file for script in granted_scripts() for file in (*script.preludes, script.file)}

    assert granted == set(PACKAGE.rglob("lua/*.lua"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: f"{script.file.parents[1].name}-{script.name}")
def test_a_script_declares_the_commands_that_its_text_reaches(script):
    reached = reachable_code(script)

    calls = re.findall(r"redis\.p?call\(([^,)]*)", reached)
    assert {name.lower() for call in calls for name in re.findall(r"'([A-Z]+)'", call)} == set(script.commands.split())


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: f"{script.file.parents[1].name}-{script.name}")
def test_a_script_declares_the_keys_that_its_text_reaches(script):
    reached = re.sub(r"^.*KEYS\[.*$", "", reachable_code(script), flags=re.MULTILINE)  # naming a key is no use

    if script.file.parents[1].name in ("dispatcher", "redis"):
        found = {family for name, family in QUEUE_KEYS.items() if re.search(rf"\b{name}\b", reached)}
    else:
        found = set(re.findall(r"\bkey\('([a-z-]+)'", reached))
    declared = {family.partition(":")[0] for family in (script.reads + " " + script.writes).split()}
    assert found == declared


QUEUE_KEYS = {
    "key": "q",
    "OUTBOX": "outbox",
    "STORED_GROUP": "group",
    "STORED_TRAJECTORY": "t",
    "DELETED": "dead",
    "POLICIES": "policies",
    "CLOCK": "clock",
}
"""Lua name → family of keys, in scripts of the queue and of the clock."""


def reachable_code(script: LuaScript) -> str:
    """Code of a script outside of functions, and of all functions that it names, directly or not."""
    code = "".join(re.sub(r"--.*", "", line) for line in script.text.splitlines(keepends=True))
    function = re.compile(r"^(?:local )?function ([\w.]+)(?:[^\n]*\bend$|.*?^end$)", re.MULTILINE | re.DOTALL)
    bodies = {found[1]: found[0] for found in function.finditer(code)}
    reached, pending = "", [function.sub("", code)]
    while pending:
        text = pending.pop()
        reached += text
        named = [name for name in bodies if re.search(rf"\b{name.partition('.')[0]}\b", text)]
        pending += [bodies.pop(name) for name in named]
    return reached


def test_an_operator_reaches_every_key():
    families = set(re.findall(r'self\.name\("([a-z-]+)"', (PACKAGE / "infra" / "redis" / "keys.py").read_text()))
    reached = {rule.partition("}:")[2].partition(":")[0] for rule in acl_rules("operator", Keys("n")) if "~" in rule}

    assert families <= reached


def test_the_keys_of_engines_are_for_roles_that_call_engines():
    names = {
        role: [rule for rule in acl_rules(role, Keys("n"), 7.2) if rule.endswith(":engine-keys")] for role in ROLES
    }

    assert {role for role, rules in names.items() if rules} == {"gateway", "trainer", "operator"}


@pytest.mark.parametrize("role", ROLES)
def test_only_one_namespace_is_named_and_nothing_is_granted_whole(role):
    rules = acl_rules(role, Keys("n"), 7.2)

    assert all("~al:{n}" in rule for rule in rules if "~" in rule)
    assert not {"+@all", "+eval", "+keys", "+flushall", "+config", "+debug", "allkeys", "nopass"} & set(rules)


def test_the_command_prints_a_line_for_each_role(capsys):
    build()(["store", "acl", "--redis", "7"], standalone_mode=False)

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines] == [["ACL", "SETUSER", f"agent-layer-{role}"] for role in ROLES]
