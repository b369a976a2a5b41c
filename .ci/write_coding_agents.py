"""The tables of docs/coding-agents.md, written from declarations of harnesses and the results of their checks.

    python .ci/write_coding_agents.py [DIR]    take over the results of DIR, then write the document
    python .ci/write_coding_agents.py --check  what differs; exit status 1 if anything does

DIR is a directory of ``agent-layer harnesses check``.
"""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap

import msgspec

from envs.harnesses import Harness, Qualification, find_harness
from envs.harnesses.qualified import OURS
from envs.harnesses.registry import list_harness_names

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "coding-agents.md"
BEGIN = "<!-- written by .ci/write_coding_agents.py -->\n"


def write_tables() -> str:
    """Return everything behind the mark."""
    known = [find_harness(name) for name in list_harness_names()]
    lines = ["", *_table_of_runs(known), "", *_table_of_lengths(known), ""]
    for harness in known:
        lines += [*_describe(harness), ""]
    return "\n".join(lines).rstrip() + "\n"


def _table_of_runs(known: list[Harness]) -> Iterator[str]:
    yield from _head(
        "agent", "version, from", "dialect", "checked, sandbox", "parts", "calls = steps", "sampled", "policy lost"
    )
    for harness in known:
        start = f"| `{harness.name}` | {harness.version}, {harness.installer} | {harness.dialect} |"
        result = _read(harness.name)
        if result is None:
            yield f"{start} not yet | | | | |"
            continue
        calls, steps = (sum(getattr(one, name) for one in result.parts) for name in ("num_calls", "num_steps"))
        sampled, trained = (sum(getattr(one, name) for one in result.parts) for name in ("sampled", "trained"))
        lost: dict[str, int] = {}
        for part in result.parts:
            for cause, number in part.lost.items():
                lost[cause] = lost.get(cause, 0) + number
        named = "".join(f" + {number} {cause}" for cause, number in sorted(lost.items()))
        others = sum(number for cause, number in lost.items() if cause not in ("aux", "cut_stream"))
        of_all = f"{calls} = {steps}" if calls == steps else f"**{calls} ≠ {steps}**"
        yield (
            f"{start} {result.checked_on}, {result.box} | {len(result.parts)} | {of_all} |"
            f" {sampled} = {trained}{named} | {others} |"
        )


def _table_of_lengths(known: list[Harness]) -> Iterator[str]:
    columns = ("longest row", "rows", "row tokens per sampled", "least `max_model_len`", "least `max_row_tokens`")
    yield from _head("agent", "first request: qwen3 · glm4moe · gptoss", *columns)
    for harness in known:
        result = _read(harness.name)
        if result is None or not result.rendered:
            continue
        needs = result.needs
        shown = result.rendered
        columns = (
            " · ".join(f"{one.first_request:,}" for one in shown),
            " · ".join(f"{one.longest_row:,}" for one in shown),
            " · ".join(str(one.num_rows) for one in shown),
            " · ".join(f"{one.row_tokens / max(1, one.sampled):.0f}" for one in shown),
            f"{needs.max_model_len:,}" if needs else "not known",
            f"{needs.max_row_tokens:,}" if needs else "not known",
        )
        yield f"| `{harness.name}` | {' | '.join(columns)} |"


def _head(*columns: str) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"


def _describe(harness: Harness) -> Iterator[str]:
    yield f"### {harness.name}"
    yield ""
    side = ", ".join(one.what for one in harness.side_calls) or "none"
    yield f"* Side calls (`aux`): {side}. Sub-agents: {'yes' if harness.sub_agent else 'no'}."
    yield f"* Switched off: {'; '.join(harness.switched_off) or 'nothing'}."
    can = [
        "continues a conversation" if harness.resume_arguments else "cannot continue a conversation",
        "summarises a long one" if harness.compaction else "was not seen to summarise one",
    ]
    found = ", ".join(f"`{one}`" for one in harness.findings) or "none"
    yield f"* It {' and '.join(can)}."
    yield f"* Findings of a clean script: {found}."
    if lacking := [name for name in harness.list_lacking() if "win" not in name.replace("darwin", "")]:
        sentence = f"* Its lock is without these builds, which the registry did not have: {', '.join(lacking)}."
        yield from wrap(sentence, 150, subsequent_indent="  ", break_on_hyphens=False)


def _read(name: str) -> Qualification | None:
    path = OURS / f"{name}.json"
    return msgspec.json.decode(path.read_bytes(), type=Qualification) if path.exists() else None


def main() -> int:
    """Write the page, or print what is wrong; return the exit status."""
    arguments = sys.argv[1:]
    if arguments and arguments != ["--check"]:
        if not OURS.is_relative_to(ROOT):
            print(
                f"results: expected to write below {ROOT}, but envs is imported from {OURS.parents[2]}; set PYTHONPATH"
            )
            return 2
        OURS.mkdir(exist_ok=True)
        for path in (Path(arguments[0]) / "harnesses" / "qualified").glob("*.json"):
            shutil.copy(path, OURS / path.name)
    text = PAGE.read_text()
    written = text.partition(BEGIN)[0] + BEGIN + write_tables()
    if arguments == ["--check"]:
        if written != text:
            print("docs/coding-agents.md: expected what declarations and checks say; run .ci/write_coding_agents.py")
        return int(written != text)
    PAGE.write_text(written)
    return 0


if __name__ == "__main__":
    sys.exit(main())
