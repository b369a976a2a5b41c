"""The word list finds phrases where people read, and leaves code and test data alone."""

import runpy
from pathlib import Path

import pytest

CHECKER = Path(__file__).parents[3] / ".ci" / "check_words.py"


@pytest.fixture
def find(tmp_path: Path):
    """Return the phrases that the checker finds in a file of this name and content."""
    checker = runpy.run_path(str(CHECKER))

    def find(name: str, content: str) -> list[tuple[int, str]]:
        path = tmp_path / Path(name).name
        path.write_text(content)
        return sorted((line, found) for line, found, _ in checker["check_file"](path, name))

    return find


def test_docstrings_comments_and_errors_are_read(find):
    source = '"""Give a name."""\n\n# a lease that nobody\n# wants\nraise ValueError(f"{who}: is told so")\n'

    assert find("agent_layer/one.py", source) == [(1, "Give …"), (3, "nobody"), (4, "wants"), (5, "is told")]


def test_a_phrase_over_a_line_end_is_found(find):
    assert find("agent_layer/one.lua", "local a = 1 -- keys of\n-- which one is free\n") == [(1, "of which")]


def test_inline_code_is_no_prose(find):
    assert find("docs/one.md", "The column `lives` counts.\nA worker lives.\n") == [(2, "lives")]


def test_data_of_tests_is_no_prose(find):
    source = 'question = "is said by whoever"\nassert question, "nobody answered"\n'

    assert find("tests/one.py", source) == [(2, "nobody")]


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("class _Told: ...", ["_Told"]),
        ("class ToldError(Exception): ...", []),
        ("def hash_of(value): ...", ["hash_of"]),
        ("class Box:\n    @property\n    def size_of(self): ...\n    @cached_property\n    def end_of(self): ...", []),
        ("def read(asked): ...", ["asked"]),
        ("first, said_at = 1, 2\nself.num_told = 3", ["num_told", "said_at"]),
        ("match one:\n    case {'a': told}: ...", ["told"]),
        ("_MOST_CALLS = 3\nalmost_done = True", ["_MOST_CALLS"]),
        ("def test_it_is_said_once(): ...", []),
        ("found = one.said, two['told']", []),
    ],
)
def test_identifiers_that_say_nothing_are_found(find, source, names):
    assert sorted(found for _, found in find("agent_layer/one.py", source)) == names


def test_identifiers_of_scripts_are_read_and_their_keys_are_not(find):
    source = "local function lead_of(asked)\n  return redis.call('GET', 'told') -- told\nend\nhear(truce)\n"

    found = find("agent_layer/one.lua", source)

    assert found == [(1, "asked"), (1, "lead_of"), (4, "hear"), (4, "truce")]


def test_a_field_is_described_by_more_than_a_fragment(find):
    source = 'class One:\n    num: int\n    """Of these."""\n    all: int\n    """Number of rollouts."""\n'

    assert find("agent_layer/one.py", source) == [(3, "Of …")]
