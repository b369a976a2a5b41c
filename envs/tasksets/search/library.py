"""The library: search by BM25 over the articles of a world, and the tools and the environment around it."""

import re
import sqlite3
from functools import lru_cache
from typing import Annotated, Final

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import Task, TaskView
from envs.env_context import EnvContext
from envs.environment import ToolEnvironment
from envs.tasksets.search.world import draw_world
from envs.tools import FunctionTool, ToolError, tool

_NUM_SHOWN: Final = 8
_MAX_WORDS: Final = 32
_TITLE_WEIGHT: Final = 3.0


class SearchInput(msgspec.Struct, frozen=True, kw_only=True):
    """What a task asks, and in which world."""

    world: str
    prompt: str


def read_input(task: Task | TaskView) -> SearchInput:
    """Return what a task asks.

    Raises: BadInputError: it is no task of this set.
    """
    try:
        return msgspec.convert(task.input, SearchInput)
    except msgspec.ValidationError as error:
        raise BadInputError(f"task {task.id!r}: is no task of set 'search', {error}; submit one of it") from error


@tool
async def search(context: EnvContext, query: Annotated[str, msgspec.Meta(max_length=1000)]) -> str:
    """Search the library; return the best articles, each with its number, its title and the place that fits.

    Args:
        context: the attempt.
        query: words that the article should contain; not all need to be there.
    """
    words = re.findall(r"\w+", query)[:_MAX_WORDS]
    if not words:
        raise ToolError("search: expected words, found none; write some")
    index = _open_index(read_input(context.task).world)
    rows: list[tuple[int, str, str]] = index.execute(
        "SELECT rowid, title, snippet(articles, 1, '', '', ' … ', 24) FROM articles WHERE articles MATCH ?"
        f" ORDER BY bm25(articles, {_TITLE_WEIGHT}, 1.0), rowid LIMIT {_NUM_SHOWN}",
        [" OR ".join(f'"{word}"' for word in words)],
    ).fetchall()
    return "\n".join(f"{number}: {title} | {place}" for number, title, place in rows) or "[no article has these words]"


async def open_article(context: EnvContext, number: int) -> str:
    """Return an article.

    Args:
        context: the attempt.
        number: as 'search' shows it.
    """
    article = draw_world(read_input(context.task).world).articles.get(number)
    if article is None:
        raise ToolError(f"open: no article has the number {number}; take one that 'search' shows")
    return f"{article.id}: {article.title}\n{article.body}"


open_tool: Final = FunctionTool(open_article, "open")


class SearchEnvironment(ToolEnvironment):
    """Begins with the question, and ends at a plain text. The scorer rewards, so no step does."""

    version = "1"
    tools = (search, open_tool)

    async def reset(self, task: Task, context: EnvContext) -> object:  # noqa: ARG002  # as in the base
        """Return the question."""
        return read_input(task).prompt


@lru_cache(maxsize=4)
def _open_index(world: str) -> sqlite3.Connection:
    """Return the articles of a world in a database in memory, by title and body.

    Raises: BadInputError: this Python's SQLite has no FTS5.
    """
    index = sqlite3.connect(":memory:", check_same_thread=False)
    try:
        index.execute("CREATE VIRTUAL TABLE articles USING fts5(title, body, tokenize='porter unicode61')")
    except sqlite3.OperationalError as error:
        raise BadInputError(f"task set 'search': {error}; use a Python whose SQLite has the extension FTS5") from error
    rows = sorted(draw_world(world).articles.values())
    index.executemany("INSERT INTO articles(rowid, title, body) VALUES (?, ?, ?)", rows)
    return index
