"""Duplicates among all compared tasks: equal ids, inputs and texts by hash, near-duplicates by MinHash.

Two templates of a generated set differ in numbers and names, so their texts are alike though they ask for different
things. Near-duplicates are therefore looked for among tasks with equal numbers and equal gradings only. The time is
linear in the number of tasks (locality-sensitive hashing over one-permutation MinHash; Li et al. 2012): each bucket
compares a task with a few others.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from agent_layer.schema import Split, Task, content_hash, fingerprint_task, measure_jaccard, read_task_text
from envs.tasksets.gate.report import Finding, make_finding

NEAR: Final = 0.9
"""Least Jaccard index of 8-grams of two near-duplicates, as of held-out tasks."""
_NUM_BINS: Final = 64
_ROWS: Final = 4
"""Bins of a band: at an index of 0.9 one of 16 bands is equal with a probability above 0.9999."""
_MAX_COMPARED: Final = 8
"""Tasks of a bucket that a task is compared with."""
_HASH_SIZE: Final = 8
_SPLITS: Final[tuple[Split, ...]] = ("train", "eval")
_MAX_CHANCE_SHARE: Final = 0.05
"""Share of repeated tasks that a set without end may draw by chance."""
_MAX_ALIKE: Final = 0.5
"""Share of near-duplicates beyond which all tasks of a set are alike, so that it tells nothing."""


class DrawnTask(NamedTuple):
    """A task, and where it was drawn."""

    task: Task
    split: Split
    level: int
    is_endless: bool = False
    """Whether its set drew as many as it was asked for."""
    is_extra: bool = False
    """Whether it is of another seed, and must only not be in split eval."""


class _Key(NamedTuple):
    task: DrawnTask
    exact: list[str]
    """Hashes of input and box, and of text, environment, grading and box: one question in two boxes is two."""
    near: bytes
    """Numbers and grading."""
    sketch: bytes


def find_duplicates(drawn: Sequence[DrawnTask]) -> list[Finding]:
    """Return what is drawn more than once: inside of a split, and in both. Extra tasks come last."""
    findings = list(_find_same_ids(drawn))
    first: dict[tuple[Split, str], _Key] = {}
    pairs: list[tuple[_Key, _Key]] = []
    near: list[tuple[_Key, _Key, float]] = []
    buckets: dict[tuple[object, ...], list[_Key]] = defaultdict(list)
    for one in drawn:
        key = _make_key(one)
        same = [
            next((first[split, text] for text in key.exact if (split, text) in first), None)
            for split in _SPLITS
            if split == "eval" or not one.is_extra
        ]
        pairs += [(found, key) for found in same if found is not None]
        if one.is_extra:
            continue
        if not any(same):
            near += _find_near(key, buckets)
        for text in key.exact:
            first.setdefault((one.split, text), key)
    return [*findings, *_judge(drawn, pairs), *_judge_near(drawn, near)]


def _find_same_ids(drawn: Sequence[DrawnTask]) -> Iterator[Finding]:
    seen: dict[tuple[Split, str], bytes] = {}
    for one in (one for one in drawn if not one.is_extra):
        content = content_hash(msgspec.msgpack.encode([one.task.input, one.task.files, one.task.grading])).encode()
        if seen.setdefault((one.split, one.task.id), content) != content:
            yield make_finding("same-id", f"id {one.task.id!r} of split {one.split}", tasks=[one.task.id])


def _make_key(one: DrawnTask) -> _Key:
    fingerprint, text = fingerprint_task(one.task), read_task_text(one.task).rstrip(" ?!.,;:")
    grading = msgspec.json.encode(one.task.grading, order="deterministic", enc_hook=repr)
    box = msgspec.json.encode(one.task.sandbox, order="deterministic", enc_hook=repr)
    exact = [content_hash(fingerprint.input_hash.encode() + box)]
    if text:
        place = (fingerprint.place_hash or "").encode()
        exact.append(content_hash(b" ".join([text.encode(), place, grading, box])))
    numbers = " ".join(re.findall(r"\d+(?:[.,]\d+)*", text)).encode()
    return _Key(one, exact, content_hash(numbers + b" " + grading).encode(), fingerprint.sketch)


def _find_near(key: _Key, buckets: dict[tuple[object, ...], list[_Key]]) -> Iterator[tuple[_Key, _Key, float]]:
    """Yield the nearest earlier task of each split, and remember this one."""
    nearest: dict[Split, tuple[float, _Key]] = {}
    compared: set[int] = set()
    minima = _take_minima(key.sketch)
    for start in range(0, _NUM_BINS, _ROWS):
        bucket = buckets[key.near, start, *minima[start : start + _ROWS]]
        for other in bucket:
            if id(other) in compared or set(other.exact) & set(key.exact):
                continue
            compared.add(id(other))
            index = measure_jaccard(key.sketch, other.sketch)
            if index >= NEAR and index > nearest.get(other.task.split, (0.0, None))[0]:
                nearest[other.task.split] = (index, other)
        if len(bucket) < _MAX_COMPARED:
            bucket.append(key)
    yield from ((other, key, index) for index, other in nearest.values())


def _take_minima(sketch: bytes) -> list[bytes]:  # kept: one-permutation MinHash
    """Return the smallest hash of each bin; empty where a bin has none."""
    minima = [b""] * _NUM_BINS
    for start in range(0, len(sketch), _HASH_SIZE):  # in ascending order
        one = sketch[start : start + _HASH_SIZE]
        place = one[-1] % _NUM_BINS
        minima[place] = minima[place] or one
    return minima


def _judge(drawn: Sequence[DrawnTask], pairs: Sequence[tuple[_Key, _Key]]) -> Iterator[Finding]:
    yield from _describe_overlap("split-overlap", [(one.task, other.task, 1.0) for one, other in pairs])
    for split in _SPLITS:
        repeated = [(one.task, other.task) for one, other in pairs if one.task.split == other.task.split == split]
        number = sum(one.split == split and not one.is_extra for one in drawn)
        is_by_chance = len(repeated) <= _MAX_CHANCE_SHARE * number and all(one.is_endless for one, _ in repeated)
        if repeated:
            one, other = repeated[0]
            evidence = (
                f"{len(repeated)} of {number} tasks of split {split} repeat another; {other.task.id} is {one.task.id}"
            )
            severity = "warns" if is_by_chance else "fails"
            yield make_finding("duplicates", evidence, tasks=[two.task.id for _, two in repeated], severity=severity)


def _judge_near(drawn: Sequence[DrawnTask], near: Sequence[tuple[_Key, _Key, float]]) -> Iterator[Finding]:
    if len({other.task.task.id for _, other, _ in near}) > _MAX_ALIKE * len(drawn):
        return
    pairs = [(one.task, other.task, index) for one, other, index in near]
    yield from _describe_overlap("near-overlap", pairs)
    if inside := [pair for pair in pairs if pair[0].split == pair[1].split]:
        one, other, index = inside[0]
        evidence = f"{len(inside)} tasks; {other.task.id} has {index:.0%} of its 8-grams in common with {one.task.id}"
        yield make_finding("near-duplicates", evidence, tasks=[two.task.id for _, two, _ in inside])


def _describe_overlap(code: str, pairs: Iterable[tuple[DrawnTask, DrawnTask, float]]) -> Iterator[Finding]:
    """Yield a finding on the tasks of train that are in eval, too: they are the ones to leave out."""
    both = [
        (one, other, index) if one.split == "train" else (other, one, index)
        for one, other, index in pairs
        if one.split != other.split
    ]
    if both:
        trained, held_out, index = both[0]
        how = "asks the same as" if index == 1.0 else f"has {index:.0%} of its 8-grams in common with"
        evidence = f"{len(both)} tasks; {trained.task.id} of split train {how} {held_out.task.id} of split eval"
        yield make_finding(code, evidence, tasks=dict.fromkeys(one.task.id for one, _, _ in both))
