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
        texts = checker["texts_of_file"](path, name)
        return sorted((line, found) for text in texts for line, found, _ in checker["check_text"](text))

    return find


def test_docstrings_comments_and_errors_are_read(find):
    source = '"""Give a name."""\n\n# a lease that nobody\n# wants\nraise ValueError(f"{who}: is told so")\n'

    assert find("agent_layer/one.py", source) == [(1, "Give …"), (3, "nobody"), (4, "wants"), (5, "is told")]


def test_a_phrase_over_a_line_end_is_found(find):
    assert find("agent_layer/one.lua", "local a = 1 -- keys of\n-- which one is free\n") == [(1, "of which")]


def test_inline_code_is_no_prose(find):
    assert find("docs/one.md", "The column `lives` counts.\nA worker lives.\n") == [(2, "lives")]


def test_data_of_tests_is_no_prose(find):
    assert find("tests/one.py", 'asked = "is said by whoever"\nassert asked, "nobody answered"\n') == [(2, "nobody")]
