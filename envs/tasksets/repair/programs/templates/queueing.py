"""A queue by priority."""

from random import Random

from envs.tasksets.repair.programs.template import Call, Case, Template, call

_SOURCE = '''\
"""A queue whose entry of least rank comes first, as a binary heap; equal ranks keep their order."""


class RankQueue:
    """Entries are rank, number of arrival and name."""

    def __init__(self):
        self.heap = []
        self.arrivals = 0

    def push(self, rank, name):
        """Add an entry; return how many there are."""
        self.heap.append((rank, self.arrivals, name))
        self.arrivals += 1
        child = len(self.heap) - 1
        while child > 0:
            parent = (child - 1) // 2
            if self.heap[parent] <= self.heap[child]:
                break
            self.heap[parent], self.heap[child] = self.heap[child], self.heap[parent]
            child = parent
        return len(self.heap)

    def pop(self):
        """Remove the first entry, and return its name."""
        if not self.heap:
            raise IndexError("the queue is empty")
        top = self.heap[0]
        last = self.heap.pop()
        if self.heap:
            self.heap[0] = last
            self.sink(0)
        return top[2]

    def sink(self, parent):
        """Move an entry down until none below it is smaller."""
        size = len(self.heap)
        while True:
            smallest = parent
            for child in (2 * parent + 1, 2 * parent + 2):
                if child < size and self.heap[child] < self.heap[smallest]:
                    smallest = child
            if smallest == parent:
                return
            self.heap[parent], self.heap[smallest] = self.heap[smallest], self.heap[parent]
            parent = smallest


def order_of(jobs):
    """Return the names of jobs, each a pair of rank and name, in the order in which they leave a queue."""
    queue = RankQueue()
    for rank, name in jobs:
        queue.push(rank, name)
    return [queue.pop() for _ in jobs]


def simulate(jobs, slots):
    """Return names with their times of end; a job is arrival, length and name, and takes the first free slot."""
    if slots < 1:
        raise ValueError("work needs a slot")
    free = [0] * slots
    ends = []
    for arrival, length, name in sorted(jobs):
        slot = free.index(min(free))
        free[slot] = max(free[slot], arrival) + length
        ends.append([name, free[slot]])
    return ends
'''

_INDEPENDENT = """\
from bisect import insort


class RankQueue:
    def __init__(self):
        self._waiting = []
        self._next = 0

    def push(self, rank, name):
        insort(self._waiting, (rank, self._next, name))
        self._next += 1
        return len(self._waiting)

    def pop(self):
        if len(self._waiting) == 0:
            raise IndexError("nothing waits")
        rank, arrival, name = self._waiting.pop(0)
        return name


def order_of(jobs):
    return [name for rank, name in sorted(jobs, key=lambda job: job[0])]


def simulate(jobs, slots):
    if slots <= 0:
        raise ValueError(slots)
    done = []
    slots_free_at = []
    for arrival, length, name in sorted(jobs):
        if len(slots_free_at) < slots:
            begin = arrival if arrival > 0 else 0
        else:
            begin = slots_free_at.pop(0)
            begin = arrival if arrival > begin else begin
        slots_free_at.append(begin + length)
        slots_free_at.sort()
        done.append([name, begin + length])
    return done
"""

_NAMES = "abcdefgh"


def _draw(rng: Random) -> Case:
    kind = rng.randrange(5)
    if kind == 0:
        return [call("order_of", [[rng.randrange(5), rng.choice(_NAMES)] for _ in range(rng.randrange(0, 9))])]
    if kind == 1:
        jobs = [[rng.randrange(12), rng.randrange(1, 8), rng.choice(_NAMES)] for _ in range(rng.randrange(0, 8))]
        return [call("simulate", jobs, rng.randrange(0 if rng.random() < 0.05 else 1, 4))]
    calls: list[Call] = [call("RankQueue")]
    calls += [_draw_step(rng) for _ in range(rng.randrange(4, 13))]
    return [*calls, *(call(".pop") for _ in range(6))]


def _draw_step(rng: Random) -> Call:
    return call(".push", rng.randrange(7), rng.choice(_NAMES)) if rng.random() < 0.7 else call(".pop")


QUEUEING = Template(
    name="queueing",
    source=_SOURCE,
    independent=_INDEPENDENT,
    names={
        "RankQueue": ("RankQueue", "PriorityQueue", "OrderedQueue"),
        "push": ("push", "enqueue", "add"),
        "order_of": ("order_of", "leaving_order", "by_rank"),
        "simulate": ("simulate", "schedule", "finish_times"),
        "sink": ("sink", "move_down", "restore_heap"),
        "rank": ("rank", "priority", "urgency"),
        "slots": ("slots", "machines", "lanes"),
        "parent": ("parent", "upper", "above"),
        "child": ("child", "lower", "below"),
        "smallest": ("smallest", "least", "best"),
    },
    draw=_draw,
    edges=[
        [call("RankQueue"), call(".pop")],
        [call("RankQueue"), call(".push", 1, "a"), call(".pop"), call(".pop")],
        [call("RankQueue"), *(call(".push", 3, name) for name in "abcde"), *(call(".pop") for _ in range(5))],
        [
            call("RankQueue"),
            *(call(".push", 9 - at, name) for at, name in enumerate("abcdefgh")),
            *(call(".pop") for _ in range(8)),
        ],
        [
            call("RankQueue"),
            *(call(".push", rank, name) for rank, name in zip((5, 2, 8, 1, 9, 3, 3), "abcdefg", strict=True)),
            *(call(".pop") for _ in range(7)),
        ],
        [call("order_of", [])],
        [call("order_of", [[2, "b"], [1, "z"], [2, "a"], [1, "c"]])],
        [call("simulate", [], 1)],
        [call("simulate", [], 0)],
        [call("simulate", [[0, 3, "a"], [0, 3, "b"], [1, 1, "c"]], 1)],
        [call("simulate", [[0, 3, "a"], [0, 2, "b"], [1, 1, "c"], [9, 2, "d"]], 2)],
        [call("simulate", [[5, 1, "x"], [2, 2, "y"]], 3)],
    ],
)
