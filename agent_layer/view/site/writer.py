"""Writes a static site: the page as one script, and what its API answers about chosen trajectories as scripts of data.

A page that was opened from a file can read no other file, but it can load scripts. So each file below ``data/`` is one
call with texts of JSON, which the page parses. No text can leave its string literal: see ``_literal``.
"""

import html
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import quote

import msgspec

from agent_layer import __version__
from agent_layer.errors import BadInputError, CorruptRecordError, NotFoundError
from agent_layer.infra import format_count
from agent_layer.schema import content_hash
from agent_layer.store import TrajectoryRow
from agent_layer.times import format_time
from agent_layer.view.answers.details import TokensAnswer, TrajectoryAnswer
from agent_layer.view.answers.lists import Answer
from agent_layer.view.reads.groups import show_group
from agent_layer.view.reads.images import image_names, read_image
from agent_layer.view.reads.params import RequestParams
from agent_layer.view.reads.runs import info, list_runs, list_updates, show_run
from agent_layer.view.reads.source import ReadContext
from agent_layer.view.reads.tokens.forks import show_forks
from agent_layer.view.reads.tokens.tokens import show_tokens
from agent_layer.view.reads.trajectories import show_trajectory
from agent_layer.view.reads.updates import show_update
from agent_layer.view.site.bundle import bundle_modules
from agent_layer.view.site.directory import replace_directory, write_mark

_Answers: TypeAlias = Iterator[tuple[str, Answer]]

_PAGE: Final = Path(__file__).parents[1] / "page"
_ENTRY: Final = "app.js"
_ABSENT: Final = ("diff", "failures", "fleet", "learning", "review")
"""Views that need the store."""
_REPLACED: Final = {
    "core/transport.js": "export/transport.js",
    "core/live.js": "export/live.js",
    **{f"views/{name}.js": "export/absent.js" for name in _ABSENT},
}
_SCRIPT: Final = "page.js"
_DATA: Final = "data"
_IMAGES: Final = "images"
_COPIED: Final = ("icon.svg", "css/*.css", "vendor/*.css", "vendor/LICENSE.*.txt")
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'"
)
_EARLY: Final = re.compile(r"<script type=\"module\" async [^>]*></script>\n")
"""Asks a server."""
_MODULE: Final = re.compile(r"<script type=\"module\" src=\"[^\"]+\"></script>")
_TOKENS: Final = 16_384
"""Tokens in one file, and in one answer of the API."""
_SAFE: Final = "!'()*"
"""What ``encodeURIComponent`` leaves as it is, beside letters, digits and what ``quote`` leaves."""


class Selection(NamedTuple):
    """The trajectories of a site."""

    rows: Sequence[TrajectoryRow]
    num_matching: int
    """All that match; a limit may leave some out."""
    command: str
    """The query as a command."""
    python: str
    """The query in Python."""
    at: float
    """When it was asked, in seconds since the epoch."""


class SiteReport(NamedTuple):
    """What was written."""

    num_trajectories: int
    num_bytes: int


def write_site(
    source: ReadContext,
    directory: Path,
    selection: Selection,
    *,
    on_progress: Callable[[int, int], None],
    on_left_out: Callable[[CorruptRecordError | NotFoundError], None],
) -> SiteReport:
    """Write a site; what was in the directory is replaced when all is written, or stays as it was.

    Args:
        source: the store.
        directory: missing, empty or an earlier export.
        selection: what the site shows. The grading of tasks is never in it.
        on_progress: called with the number of trajectories that are written, and of all.
        on_left_out: called with why a trajectory cannot be read.

    Raises: BadInputError: the directory holds something else or cannot be written, or no trajectory can be read.
    """
    with replace_directory(directory) as place:
        _write_page(place, selection)
        written = _write_data(source, place / _DATA, selection, on_progress, on_left_out)
        if not written:
            raise BadInputError(
                f"export to {directory}: expected a trajectory that can be read, found {len(selection.rows)} that"
                " cannot; 'agent-layer store check' says what is damaged"
            )
        write_mark(place, __version__, written)
        num_bytes = sum(path.stat().st_size for path in place.rglob("*"))
    return SiteReport(written, num_bytes)


def _write_page(place: Path, selection: Selection) -> None:
    """Write what is the same for all trajectories."""
    for path in (path for pattern in _COPIED for path in sorted(_PAGE.glob(pattern))):
        copy = place / path.relative_to(_PAGE)
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(path.read_bytes())
    script = bundle_modules(lambda name: (_PAGE / name).read_text(encoding="utf-8"), _ENTRY, _REPLACED)
    (place / _SCRIPT).write_text(script, encoding="utf-8")
    policy = f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    shell = (_PAGE / "index.html").read_text(encoding="utf-8").replace('<meta charset="utf-8">', policy, 1)
    shell = _EARLY.sub("", shell)
    shell = _MODULE.sub(f'<script defer src="{_SCRIPT}"></script>', shell)
    note = f'<footer class="export-note small quiet">{html.escape(_describe(selection))}</footer>\n</body>'
    (place / "index.html").write_text(shell.replace("</body>", note, 1), encoding="utf-8")


def _describe(selection: Selection) -> str:
    num, of = len(selection.rows), selection.num_matching
    which = f"{num:,} of {of:,} matching trajectories" if num < of else format_count(num, "trajectory")
    at = format_time(int(selection.at)).replace(".000Z", "Z")
    return (
        f"Export of {which}, {at}: {selection.command} · {', '.join(_ABSENT).capitalize()},"
        " search and all that changes something need the store, and are not in it."
    )


def _write_data(
    source: ReadContext,
    place: Path,
    selection: Selection,
    on_progress: Callable[[int, int], None],
    on_left_out: Callable[[CorruptRecordError | NotFoundError], None],
) -> int:
    """Write all answers; return the number of trajectories."""
    place.mkdir()
    files: dict[str, str] = {}
    rows: list[TrajectoryRow] = []
    updates: set[tuple[str, str]] = set()
    for at, row in enumerate(selection.rows):
        try:
            params = _ask(trajectory=row.trajectory_id)
            answer, forks = show_trajectory(source, params), show_forks(source, params)
            tokens = list(_token_pages(source, row.trajectory_id))
        except (CorruptRecordError, NotFoundError) as error:  # it is damaged, or was deleted a moment ago
            on_left_out(error)
            continue
        path = _path("trajectories", row.trajectory_id)
        files |= _write_images(source, place.parent, answer)
        _write(place, files, f"t{at}", [(path, answer), (f"{path}/forks", forks)])
        for page, one in enumerate(tokens):
            _write(place, files, f"t{at}-{page}", [(f"{path}/tokens/{page}", one)])
        rows.append(answer.row)
        updates |= {(one.run, str(one.step)) for one in answer.updates}
        on_progress(at + 1, len(selection.rows))
    shown = {row.trajectory_id for row in rows}
    for number, found in enumerate(_around(source, rows, shown, sorted(updates))):
        _write(place, files, f"r{number}", [found])
    site = {
        "command": selection.command,
        "python": selection.python,
        "at": selection.at,
        "tokens": _TOKENS,
        "rows": rows,
        "files": files,
    }
    _write_script(place / "site.js", "site", [("site", msgspec.json.encode(site))])
    return len(rows)


def _write_images(source: ReadContext, place: Path, answer: TrajectoryAnswer) -> dict[str, str]:
    """Write the images of a trajectory's messages and tools' answers; return their files by path.

    What is no raster image is left out.
    """
    files: dict[str, str] = {}
    trajectory = answer.row.trajectory_id
    messages = [[*step.new_messages, step.message] for step in answer.steps]
    outputs = [one.output for step in answer.steps for one in step.observations]
    for name in dict.fromkeys(image_names([messages, outputs])):
        try:
            image = read_image(source, _ask(trajectory=trajectory, image=name))
        except NotFoundError:
            continue
        file = f"{_IMAGES}/{content_hash(image.content)}.{image.kind}"
        (place / _IMAGES).mkdir(exist_ok=True)
        (place / file).write_bytes(image.content)
        files[_path("trajectories", trajectory, "images", name)] = file
    return files


def _around(
    source: ReadContext, rows: Sequence[TrajectoryRow], shown: set[str], updates: Iterable[tuple[str, str]]
) -> _Answers:
    """Yield answers about runs, groups and updates that the trajectories belong to."""
    runs = sorted({row.run for row in rows if row.run})
    yield "info", msgspec.structs.replace(info(source, _ask()), cooled_runs=[])
    listed = list_runs(source, _ask())
    yield "runs", msgspec.structs.replace(listed, items=[one for one in listed.items if one.run in runs])
    for run in runs:
        answer = show_run(source, _ask(run=run))
        failures = [row for row in answer.failures if row.trajectory_id in shown]
        yield _path("runs", run), msgspec.structs.replace(answer, failures=failures)
        yield _path("runs", run, "updates"), list_updates(source, _ask(run=run))
    for run, step in updates:
        yield _path("runs", run, "updates", step), show_update(source, _ask(run=run, step=step))
    for group in dict.fromkeys(row.group_id for row in rows if row.group_id):
        yield _path("groups", group), show_group(source, _ask(group=group))


def _ask(**path: str) -> RequestParams:
    """Return the question of a reader, who never sees the grading of a task."""
    return RequestParams(path, {})


def _token_pages(source: ReadContext, trajectory_id: str) -> Iterator[TokensAnswer]:
    begin, total = 0, 1
    while begin < total:
        query = {"from": [str(begin)], "to": [str(begin + _TOKENS)]}
        page = show_tokens(source, RequestParams({"trajectory": trajectory_id}, query))
        begin, total = begin + _TOKENS, page.total
        yield page


def _path(*parts: str) -> str:
    return "/".join(quote(part, safe=_SAFE) for part in parts)


def _write(place: Path, files: dict[str, str], name: str, answers: Sequence[tuple[str, Answer]]) -> None:
    files |= dict.fromkeys((path for path, _ in answers), name)
    _write_script(place / f"{name}.js", name, [(path, msgspec.json.encode(answer)) for path, answer in answers])


def _write_script(file: Path, name: str, texts: Sequence[tuple[str, bytes]]) -> None:
    """Write a script that hands texts to the page, in pairs with the paths that they answer."""
    pairs = ",\n".join(f"{_literal(path.encode())},{_literal(text)}" for path, text in texts)
    file.write_text(f"agentLayerHold({_literal(name.encode())},[\n{pairs}\n]);\n", encoding="utf-8")


def _literal(text: bytes) -> str:
    """Return a text as a string literal of JavaScript, from which no markup, line end or comment can come."""
    literal = msgspec.json.encode(text.decode()).decode()
    for character in "<>&\u2028\u2029":
        literal = literal.replace(character, f"\\u{ord(character):04x}")
    return literal
