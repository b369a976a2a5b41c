"""Tables in Markdown: what arithmetic expects of each case, and what was found beside it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from trainer_adapter.evidence.cases import CASES, PLANNED_TFLOPS, count_bucket_bytes, expect
from trainer_adapter.evidence.records import Buckets, Evidence, Fault, Heartbeat, Machine, Measured, RatioTails, Update

_Kind = TypeVar("_Kind", bound=Measured)


def write_expected() -> str:
    """Return the table of what arithmetic expects on one GPU."""
    rows = [
        (
            case.name,
            f"{case.shape.num_parameters:,}",
            f"{length:,}",
            _gb(found.peak_bytes),
            _gb(found.states_bytes),
            f"{found.flops_per_token / 1e9:.1f}",
            f"{found.max_tokens_per_second:,.0f}",
            _gb(count_bucket_bytes(case)),
        )
        for case in CASES
        for length in case.row_lengths
        for found in [expect(case, length)]
    ]
    titles = ("model", "parameters", "tokens of a row", "peak GB", "of it states", "GFLOP a token")
    return "\n".join(_table([*titles, f"tokens/s at {PLANNED_TFLOPS} TFLOP/s", "buckets GB"], rows)) + "\n"


def write_evidence(evidence: Evidence) -> str:
    """Return a page of what was found."""
    machines = _select(evidence.found, Machine)
    name = f"{machines[0].num_ranks} x {machines[0].name}" if machines else "nothing that started"
    title = f"{'Rehearsal on a CPU' if evidence.is_rehearsal else name}, {evidence.date}"
    lines = [f"## {title}", ""]
    if evidence.is_rehearsal:
        lines += [
            "Tiny models on a CPU: **times and memory mean nothing**. Only that it runs, and what is equal, counts.",
            "",
        ]
    for one in machines:
        versions = ", ".join(f"{package} {version}" for package, version in one.versions.items())
        memory = "" if one.gpu_bytes is None else f" {_gb(one.gpu_bytes)} GB each;"
        lines += [f"{name};{memory} products of bfloat16 matrices {one.tflops:,.3g} TFLOP/s; {versions}."]
    lines += [f"{evidence.seconds / 60:.1f} minutes. Expected figures are those of the dry run's arithmetic.", ""]
    for titles, rows in (_updates(evidence), _tails(evidence), _buckets(evidence)):
        lines += [*_table(titles, rows), ""] if rows else []
    faults = [f"{one.what}: {one.why}" for one in _select(evidence.found, Fault)]
    for heading, sentences in (("Not measured", faults), ("Not looked at", evidence.not_checked)):
        lines += [f"{heading}:", "", *(f"* {sentence}" for sentence in sentences), ""] if sentences else []
    return "\n".join(lines)


def summarize(one: Measured) -> str:
    """Return a measurement as a line of progress."""
    match one:
        case Machine():
            return f"{one.num_ranks} x {one.name}, {one.tflops:,.3g} TFLOP/s"
        case Update():
            memory = (
                ""
                if one.peak_bytes is None
                else f", {_gb(one.peak_bytes)} GB ({_gb(one.expected.peak_bytes)} expected)"
            )
            return f"{one.tokens_per_second:,.0f} tokens/s, MFU {one.mfu:.1%}{memory}"
        case RatioTails():
            return f"|log ratio| mean {one.mean:.1e}, p99.9 {one.p999:.1e}, largest {one.largest:.1e}"
        case Buckets():
            verdict = "equal" if one.is_equal else "NOT equal"
            return f"{_gb(one.num_bytes)} GB in {one.seconds:.2f} s, {verdict} at both ends"
        case Fault():
            return f"not measured: {one.why}"
        case Heartbeat():
            return one.doing


def _updates(evidence: Evidence) -> tuple[Sequence[str], list[tuple[str, ...]]]:
    rows = [
        (
            one.case,
            f"{one.num_rows} x {one.row_length:,}",
            f"{one.seconds:.2f}",
            f"{one.tokens_per_second:,.0f}",
            f"{one.expected.max_tokens_per_second:,.0f}",
            f"{one.mfu:.1%}",
            "-" if one.peak_bytes is None else _gb(one.peak_bytes),
            _gb(one.expected.peak_bytes),
            "-" if one.peak_bytes is None else f"{one.peak_bytes / one.expected.peak_bytes - 1:+.0%}",
        )
        for one in _select(evidence.found, Update)
    ]
    speed = ("seconds", "tokens/s of a GPU", f"at {PLANNED_TFLOPS} TFLOP/s", "MFU")
    return ("update", "rows", *speed, "peak GB", "expected", "gap"), rows


def _tails(evidence: Evidence) -> tuple[Sequence[str], list[tuple[str, ...]]]:
    rows = [
        (
            one.case,
            one.trainer,
            one.engine,
            f"{one.num_tokens:,}",
            *(f"{value:.1e}" for value in (one.mean, one.p99, one.p999, one.largest)),
        )
        for one in _select(evidence.found, RatioTails)
    ]
    return ("log ratio", "trainer", "engine", "tokens", "mean", "p99", "p99.9", "largest"), rows


def _buckets(evidence: Evidence) -> tuple[Sequence[str], list[tuple[str, ...]]]:
    rows = [
        (
            one.case,
            _gb(one.num_bytes),
            _gb(one.expected_bytes),
            f"{one.seconds:.2f}",
            "yes" if one.is_equal else "**no**",
        )
        for one in _select(evidence.found, Buckets)
    ]
    return ("weights in buckets", "GB", "expected", "seconds", "arrived as sent"), rows


def _select(found: Iterable[Measured], kind: type[_Kind]) -> list[_Kind]:
    return [one for one in found if isinstance(one, kind)]


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(titles)} |"
    yield f"|{'---|' * len(titles)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def _gb(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.3g}"
