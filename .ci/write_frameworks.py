"""The tables of docs/frameworks.md and README's *Works with*, written from what was tried.

python .ci/write_frameworks.py            write them
python .ci/write_frameworks.py --check    what differs; exit status 1 if anything does
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from frameworks import FRAMEWORKS, Framework, Tried, read_tried

from envs.harnesses.registry import list_harness_names

ROOT = Path(__file__).resolve().parents[1]
PAGE, README = ROOT / "docs" / "frameworks.md", ROOT / "README.md"
BEGIN, NEXT = "<!-- written by .ci/write_frameworks.py -->\n", "\n## "
_ROW_LENGTH = 110
_CLIENTS = ("openai", "anthropic", "google-genai", "litellm")
"""Frameworks that are clients of one API."""


def write_page() -> str:
    """Return the tables of the page."""
    tried: dict[str, list[Tried]] = {}
    for one in read_tried():
        tried.setdefault(one.framework, []).append(one)
    known = [one for one in FRAMEWORKS if one.name in tried]
    lines = ["", "| framework | versions | the model is | tried |", "|---|---|---|---|"]
    lines += [
        f"| {one.title} | {_versions(tried[one.name])} | {one.how} | {max(each.tried_on for each in tried[one.name])} |"
        for one in known
    ]
    lines += [
        "",
        "| agent | calls = steps | sampled = trained | rows | rows, thinking | findings | a missed form |",
        "|---|---|---|---|---|---|---|",
    ]
    for framework in known:
        lines += [_row(one) for one in tried[framework.name]]
    return "\n".join([*lines, ""])


def _versions(tried: list[Tried]) -> str:
    found = {name: version for one in tried for name, version in one.versions.items()}
    return ", ".join(f"{name} {version}" for name, version in sorted(found.items()))


def _row(one: Tried) -> str:
    plain, thinking = one.rollouts
    calls, steps = (sum(getattr(each, name) for each in one.rollouts) for name in ("num_calls", "num_steps"))
    sampled, trained = (sum(getattr(each, name) for each in one.rollouts) for name in ("sampled", "trained"))
    lost = "".join(f" + {number} {cause}" for each in one.rollouts for cause, number in each.lost.items())
    found = sorted({f"`{finding}`" for each in one.rollouts for finding in each.findings})
    columns = (
        f"`{one.agent}`, {one.mode}",
        f"{calls} = {steps}" if calls == steps else f"**{calls} ≠ {steps}**",
        f"{sampled} = {trained}{lost}",
        _rows(plain.num_rows, plain.forks),
        _rows(thinking.num_rows, thinking.forks),
        ", ".join(found),
        _missed(one),
    )
    return f"| {' | '.join(columns)} |"


def _rows(number: int, forks: dict[str, int]) -> str:
    causes = ", ".join(forks)
    return f"{number} ({causes})" if causes else str(number)


def _missed(one: Tried) -> str:
    if one.missed is None:
        return ""
    return (
        "goes on"
        if one.missed.fault is None
        else f"`{one.missed.fault.partition(':')[0].rpartition('.')[2]}`: {one.missed.ending}"
    )


def write_works_with() -> str:
    """Return README's table."""
    known = {one.framework for one in read_tried()}
    frameworks = [one for one in FRAMEWORKS if one.name in known]
    packages = json.loads((ROOT / "tests" / "makes" / "node" / "package.json").read_text())["dependencies"]
    npm = ", ".join(f"`{name}` {packages[name]}" for name in ("@anthropic-ai/sdk", "ai", "@ai-sdk/openai"))
    clients = [_name(one) for one in frameworks if one.name in _CLIENTS]
    rows = [
        *_wrap("[frameworks](docs/frameworks.md)", [_name(one) for one in frameworks if one.name not in _CLIENTS]),
        ("clients", f"{', '.join(clients)}; npm: {npm}"),
        ("[coding agents](docs/coding-agents.md)", ", ".join(list_harness_names())),
        ("any program, any language", "by `OPENAI_BASE_URL`, `ANTHROPIC_BASE_URL` or `GOOGLE_GEMINI_BASE_URL`"),
        (
            "traced without a gateway",
            "LangGraph's nodes, edges, state, tools; these clients; `@tracer.agent`, `@tracer.tool`",
        ),
        ("OpenTelemetry spans, as text", "GenAI, OpenInference, OpenLLMetry"),
    ]
    lines = ["| | as they ship |", "|---|---|", *(f"| {' | '.join(row)} |" for row in rows), ""]
    return "\n".join(lines)


def _wrap(title: str, names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield rows that are not too long for a line."""
    row: list[str] = []
    for name in names:
        if row and len(", ".join([*row, name])) > _ROW_LENGTH:
            yield title, ", ".join(row)
            title, row = "", []
        row.append(name)
    yield title, ", ".join(row)


def _name(framework: Framework) -> str:
    return f"{framework.title} {framework.requires[0].partition('==')[2]}"


def main() -> int:
    """Write both, or print what is wrong; return the exit status."""
    is_check, is_wrong = sys.argv[1:] == ["--check"], False
    for path, written in ((PAGE, write_page()), (README, write_works_with())):
        text = path.read_text()
        before, begin, rest = text.partition(BEGIN)
        _, heading, rest = rest.partition(NEXT)
        new = before + begin + written + heading + rest
        is_wrong |= new != text
        if not is_check:
            path.write_text(new)
        elif new != text:
            print(f"{path.relative_to(ROOT)}: expected what was tried; run .ci/write_frameworks.py")
    return int(is_check and is_wrong)


if __name__ == "__main__":
    sys.exit(main())
