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
    tried = _read_by_framework()
    known = [one for one in FRAMEWORKS if one.name in tried]
    lines = ["", "| framework | versions | the model is | tried |", "|---|---|---|---|"]
    lines += [
        f"| {one.title} | {_versions(tried[one.name])} | {one.how} | {max(each.tried_on for each in tried[one.name])} |"
        for one in known
    ]
    columns = ("agent", "calls = steps", "sampled = trained", "rows", "rows, thinking", "findings", "a missed form")
    lines += ["", f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for framework in known:
        modes: dict[tuple[str, str], list[str]] = {}
        for one in sorted(tried[framework.name], key=lambda one: (one.agent, one.mode == "streamed")):
            modes.setdefault((one.agent, _row(one)), []).append(one.mode)
        lines += [f"| `{agent}`{_name_modes(which)} | {row} |" for (agent, row), which in modes.items()]
    return "\n".join([*lines, ""])


def _name_modes(modes: list[str]) -> str:
    """Name what is said of one mode alone."""
    return "" if len(modes) > 1 else f", {modes[0]}"


def _read_by_framework() -> dict[str, list[Tried]]:
    found: dict[str, list[Tried]] = {}
    for one in read_tried():
        found.setdefault(one.framework, []).append(one)
    return found


def _versions(tried: list[Tried]) -> str:
    found = {name: version for one in tried for name, version in one.versions.items()}
    return ", ".join(f"{name} {version}" for name, version in sorted(found.items()))


def _row(one: Tried) -> str:
    plain, thinking = one.rollouts
    calls, steps = (sum(getattr(each, name) for each in one.rollouts) for name in ("num_calls", "num_steps"))
    sampled, trained = (sum(getattr(each, name) for each in one.rollouts) for name in ("sampled", "trained"))
    lost = "".join(f" + {number} {cause}" for each in one.rollouts for cause, number in each.lost.items())
    columns = (
        f"{calls} = {steps}" if calls == steps > 0 else f"**{calls} ≠ {steps}**",
        f"{sampled} = {trained}{lost}",
        _rows(plain.num_rows, plain.forks),
        _rows(thinking.num_rows, thinking.forks),
        _findings(one),
        _missed(one),
    )
    return " | ".join(columns)


def _findings(one: Tried) -> str:
    """Return the findings by kind, in few words."""
    kinds: dict[str, list[str]] = {}
    for finding in sorted({finding for each in one.rollouts for finding in each.findings}):
        kind, _, name = finding.partition(":")
        kinds.setdefault(kind, []).append(name)
    return "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items())


def _rows(number: int, forks: dict[str, int]) -> str:
    causes = ", ".join(forks)
    return f"{number} ({causes})" if causes else str(number)


def _missed(one: Tried) -> str:
    if one.missed is None:
        return ""
    if one.missed.fault is None:
        return "goes on"
    return f"raises, {'counts' if one.missed.ending == 'truncated, policy' else one.missed.ending}"


def write_works_with() -> str:
    """Return README's table."""
    tried = _read_by_framework()
    frameworks = [one for one in FRAMEWORKS if one.name in tried and all(each.is_good for each in tried[one.name])]
    packages = json.loads((ROOT / "tests" / "makes" / "node" / "package.json").read_text())["dependencies"]
    npm = ", ".join(f"`{name}` {packages[name]}" for name in ("@anthropic-ai/sdk", "ai", "@ai-sdk/openai"))
    clients = [_name(one) for one in frameworks if one.name in _CLIENTS]
    rows = [
        *_wrap("[frameworks](docs/frameworks.md)", [_name(one) for one in frameworks if one.name not in _CLIENTS]),
        ("clients", f"{', '.join(clients)}; npm: {npm}"),
        *_wrap("[coding agents](docs/coding-agents.md)", list_harness_names()),
        ("any program, any language", "by `OPENAI_BASE_URL`, `ANTHROPIC_BASE_URL` or `GOOGLE_GEMINI_BASE_URL`"),
        (
            "traced without a gateway",
            "LangGraph's nodes, state, tools; these clients; functions; spans of GenAI, OpenInference, OpenLLMetry",
        ),
        (
            "[tasks](docs/how-to/task-sets.md)",
            "Harbor directories, reasoning-gym, Gymnasium, verifiers 0.4, inspect_ai, OpenEnv; `tasksets audit`",
        ),
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
