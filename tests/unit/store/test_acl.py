"""This file holds that the table of rights forgets no script and no key, and prints what redis-cli takes."""

import re
from pathlib import Path

import pytest

import agent_layer
from agent_layer.cli.main import build
from agent_layer.infra.redis.acl import ROLES, granted_scripts, rules_of
from agent_layer.infra.redis.keys import Keys

PACKAGE = Path(agent_layer.__file__).parent


def test_every_script_is_some_roles_work():
    scripts = {str(path.relative_to(PACKAGE)) for path in PACKAGE.glob("*/lua/**/*.lua")}

    assert {name.removesuffix(".lua").replace("/lua/", "/") for name in scripts} == granted_scripts()


def test_an_operator_reaches_every_key():
    families = set(re.findall(r'self\.name\("([a-z-]+)"', (PACKAGE / "infra" / "redis" / "keys.py").read_text()))
    reached = {rule.partition("}:")[2].partition(":")[0] for rule in rules_of("operator", Keys("n")) if "~" in rule}

    assert families <= reached


@pytest.mark.parametrize("role", ROLES)
def test_only_one_namespace_is_named_and_nothing_is_granted_whole(role):
    rules = rules_of(role, Keys("n"), 7.2)

    assert all("~al:{n}" in rule for rule in rules if "~" in rule)
    assert not {"+@all", "+eval", "+keys", "+flushall", "+config", "+debug", "allkeys", "nopass"} & set(rules)


def test_the_command_prints_a_line_for_each_role(capsys):
    build()(["store", "acl", "--redis", "7"], standalone_mode=False)

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines] == [["ACL", "SETUSER", f"agent-layer-{role}"] for role in ROLES]
