"""Scripts define nothing unused, and make the moves that Python knows and no others."""

import re
from pathlib import Path

import pytest
from redis.exceptions import ResponseError

from agent_layer.dispatcher import LEASE_SCRIPTS, SUBMIT_SCRIPTS, scripts
from agent_layer.dispatcher.scripts import queue_keys
from agent_layer.infra import CLOCK_PRELUDE, SharedClock

from .moves import MOVES

LUA = Path(scripts.__file__).parent / "lua"
FILES = {path.stem: path.read_text() for path in LUA.glob("*.lua")}
SCRIPTS = {*LEASE_SCRIPTS, *SUBMIT_SCRIPTS}


def test_no_prelude_is_a_script():
    assert not {one.file for one in SCRIPTS} & {file for one in SCRIPTS for file in one.preludes}


@pytest.mark.parametrize("name", sorted(FILES))
def test_what_a_file_defines_is_used_by_some_script(name):
    wholes = [script.text for script in SCRIPTS]
    for defined in re.findall(r"^local function (\w+)", FILES[name], re.MULTILINE):
        counts = [len(re.findall(rf"\b{defined}\b", whole)) for whole in wholes if FILES[name] in whole]
        assert max(counts) > 1, defined


def ask(redis, keys, text, *arguments):
    whole = CLOCK_PRELUDE.read_text() + FILES["prelude"] + text
    return redis.register_script(whole)(queue_keys(keys), [*arguments, SharedClock(redis, keys).estimate_ms()])


def test_the_table_of_moves_is_that_of_python(redis, keys):
    for old in MOVES:
        legal = {new for new in MOVES if ask(redis, keys, "return may_move(ARGV[1], ARGV[2]) and 1 or 0", old, new)}
        assert legal == MOVES[old]


def test_an_illegal_move_writes_nothing(redis, keys):
    with pytest.raises(ResponseError, match="completed to leased"):
        ask(redis, keys, "move('t.0', 'completed', 'leased', 'token', '7')")

    assert not redis.exists(keys.queue("r", "t.0"))


def test_every_change_of_a_status_goes_through_the_table():
    others = {name: text for name, text in FILES.items() if name != "queue"}

    assert [
        name for name, text in others.items() if "'status'," in text and re.search(r"HSET'[^)]*'status'", text)
    ] == []
