"""What a process is to measure, and what it found. Records travel between processes as JSON."""

from typing import TypeAlias

import msgspec

from trainer_adapter.evidence.cases import Case, Expected


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is to measure."""

    case: Case
    precision: str
    """Precision of the trainer."""
    engines: list[str] = []
    """Precisions of engines whose log-probabilities are compared with the trainer's."""
    has_updates: bool = True
    """Whether updates and buckets are measured."""
    directory: str
    """Place of the model and of a socket; every machine has one of its own."""
    results: str
    """File to which lines are appended."""


class Found(msgspec.Struct, frozen=True, kw_only=True, tag=True, tag_field="kind"):
    """One measurement."""


class Machine(Found, frozen=True, kw_only=True):
    """Where it was made."""

    device: str
    """``cuda`` or ``cpu``."""
    name: str
    num_ranks: int
    """Processes that shared the model: GPUs, except on a CPU."""
    gpu_bytes: int | None
    """Memory of one; None without GPUs."""
    tflops: float
    """Speed of a product of bfloat16 matrices."""
    versions: dict[str, str]
    """Versions of packages."""


class Update(Found, frozen=True, kw_only=True):
    """One update, the second of its rows: kernels are chosen and memory is laid out by then."""

    case: str
    row_length: int
    num_rows: int
    seconds: float
    tokens_per_second: float
    """Speed of each GPU."""
    mfu: float
    """FLOPs that the update needs, by the second, over those of ``Machine.tflops``."""
    peak_bytes: int | None
    """Allocated by torch in the first process; None on a CPU."""
    grad_norm: float
    expected: Expected


class RatioTails(Found, frozen=True, kw_only=True):
    """How log-probabilities of trainer and engine differ on the same weights: |log ratio| over tokens."""

    case: str
    trainer: str
    """Precision."""
    engine: str
    """Precision of Hugging Face's model, which plays the engine."""
    num_tokens: int
    mean: float
    p99: float
    p999: float
    largest: float


class Buckets(Found, frozen=True, kw_only=True):
    """Whole weights in float32 on their way into another process on the same GPU."""

    case: str
    num_bytes: int
    expected_bytes: int
    seconds: float
    is_equal: bool


class Fault(Found, frozen=True, kw_only=True):
    """What could not be measured."""

    what: str
    why: str


class Heartbeat(Found, frozen=True, kw_only=True):
    """What a process does now."""

    doing: str


Measured: TypeAlias = Machine | Update | RatioTails | Buckets | Fault | Heartbeat


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a file."""

    found: Measured


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """All that was found in one run."""

    date: str
    seconds: float
    is_rehearsal: bool
    found: list[Measured]
    not_checked: list[str]
    """What this did not look at, a sentence each."""
