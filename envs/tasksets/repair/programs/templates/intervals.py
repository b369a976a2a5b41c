"""Sets of half-open spans of integers."""

from random import Random

from envs.tasksets.repair.programs.template import Case, Template, call

_SOURCE = '''\
"""Sets of integers as half-open spans, each a pair of start and end."""


def merge_spans(spans):
    """Return the spans sorted, without empty ones, those that touch or overlap joined."""
    merged = []
    for start, end in sorted(spans):
        if start >= end:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged


def covered(spans):
    """Count the integers that any span contains."""
    return sum(end - start for start, end in merge_spans(spans))


def free_spans(spans, low, high):
    """Return what the spans leave free between low and high."""
    free = []
    cursor = low
    for start, end in merge_spans(spans):
        if start >= high:
            break
        if start > cursor:
            free.append([cursor, start])
        cursor = max(cursor, end)
    if cursor < high:
        free.append([cursor, high])
    return free


def busiest(spans):
    """Return the largest number of spans that share an integer."""
    events = []
    for start, end in spans:
        if start < end:
            events.append((start, 1))
            events.append((end, -1))
    most = 0
    depth = 0
    for _, change in sorted(events):
        depth += change
        most = max(most, depth)
    return most
'''

_INDEPENDENT = """\
def _points(spans):
    found = {}
    for start, end in spans:
        for point in range(start, end):
            found[point] = found.get(point, 0) + 1
    return found


def merge_spans(spans):
    result = []
    for point in sorted(_points(spans)):
        if result and result[-1][1] == point:
            result[-1][1] = point + 1
        else:
            result.append([point, point + 1])
    return result


def covered(spans):
    return len(_points(spans))


def free_spans(spans, low, high):
    taken = _points(spans)
    return merge_spans([[point, point + 1] for point in range(low, high) if point not in taken])


def busiest(spans):
    return max(_points(spans).values(), default=0)
"""


def _draw(rng: Random) -> Case:
    spans: list[list[int]] = []
    for _ in range(rng.randrange(0, 7)):
        start = rng.randrange(-5, 25)
        spans.append([start, start + rng.randrange(-1, 8)])
    kind = rng.randrange(5)
    if kind < 2:
        return [call("merge_spans", spans)]
    if kind == 2:
        return [call("covered", spans)]
    if kind == 3:
        low = rng.randrange(-6, 12)
        return [call("free_spans", spans, low, low + rng.randrange(0, 20))]
    return [call("busiest", spans)]


INTERVALS = Template(
    name="intervals",
    source=_SOURCE,
    independent=_INDEPENDENT,
    names={
        "merge_spans": ("merge_spans", "join_ranges", "union"),
        "covered": ("covered", "total_size", "count_points"),
        "free_spans": ("free_spans", "gaps_between", "holes"),
        "busiest": ("busiest", "peak", "most_at_once"),
        "spans": ("spans", "ranges", "intervals"),
        "start": ("start", "first", "left"),
        "end": ("end", "stop", "right"),
        "cursor": ("cursor", "position", "reached"),
        "low": ("low", "lower", "opening"),
        "high": ("high", "upper", "closing"),
    },
    draw=_draw,
    edges=[
        [call("merge_spans", [])],
        [call("merge_spans", [[3, 5], [1, 3]])],
        [call("merge_spans", [[1, 9], [2, 4]])],
        [call("merge_spans", [[4, 4], [6, 5]])],
        [call("merge_spans", [[1, 2], [3, 4]])],
        [call("merge_spans", [[0, 1], [0, 3], [0, 0]])],
        [call("covered", [[1, 4], [2, 6], [9, 9]])],
        [call("free_spans", [], 2, 5)],
        [call("free_spans", [], 5, 5)],
        [call("free_spans", [[0, 10]], 2, 5)],
        [call("free_spans", [[2, 3]], 2, 5)],
        [call("free_spans", [[4, 5]], 2, 5)],
        [call("free_spans", [[5, 7], [8, 9]], 2, 5)],
        [call("free_spans", [[7, 9]], 2, 5)],
        [call("free_spans", [[0, 1], [3, 4]], 2, 6)],
        [call("busiest", [])],
        [call("busiest", [[1, 2], [2, 3]])],
        [call("busiest", [[1, 3], [2, 4], [2, 2]])],
        [call("busiest", [[1, 9], [2, 3], [4, 5], [6, 7]])],
    ],
)
