"""A bounded cache, and a function that remembers."""

from random import Random

from envs.tasksets.repair.programs.template import Call, Case, Template, call

_SOURCE = '''\
"""A cache that forgets what was used longest ago, and counts of ways through a grid that use it."""


class RecentCache:
    """Values by key, at most as many as the capacity."""

    def __init__(self, capacity):
        if capacity < 1:
            raise ValueError("a cache has room for at least one value")
        self.capacity = capacity
        self.hits = 0
        self.misses = 0
        self.entries = {}

    def lookup(self, key, default):
        """Return the value of a key, which becomes the most recent one."""
        if key not in self.entries:
            self.misses += 1
            return default
        self.hits += 1
        value = self.entries.pop(key)
        self.entries[key] = value
        return value

    def store(self, key, value):
        """Set a value, which becomes the most recent one; return the key that it pushed out."""
        removed = None
        if key in self.entries:
            self.entries.pop(key)
        elif len(self.entries) >= self.capacity:
            removed = next(iter(self.entries))
            self.entries.pop(removed)
        self.entries[key] = value
        return removed

    def oldest_first(self):
        """Return the keys in the order in which they would go."""
        return list(self.entries)

    def counts(self):
        """Return how often a key was there, and how often it was not."""
        return [self.hits, self.misses]


def count_ways(rows, columns, blocked):
    """Count ways through a grid from one corner to the other, only right or down, around blocked cells."""
    walls = {tuple(cell) for cell in blocked}
    known = {}

    def ways(row, column):
        if row >= rows or column >= columns or (row, column) in walls:
            return 0
        if row == rows - 1 and column == columns - 1:
            return 1
        key = (row, column)
        if key not in known:
            known[key] = ways(row + 1, column) + ways(row, column + 1)
        return known[key]

    return ways(0, 0)
'''

_INDEPENDENT = """\
class RecentCache:
    def __init__(self, capacity):
        if capacity <= 0:
            raise ValueError(capacity)
        self._size = capacity
        self._order = []
        self._values = []
        self._found = [0, 0]

    def lookup(self, key, default):
        if key in self._order:
            self._found[0] += 1
            at = self._order.index(key)
            self._order.append(self._order.pop(at))
            self._values.append(self._values.pop(at))
            return self._values[-1]
        self._found[1] += 1
        return default

    def store(self, key, value):
        if key in self._order:
            at = self._order.index(key)
            del self._order[at], self._values[at]
        self._order.append(key)
        self._values.append(value)
        if len(self._order) > self._size:
            self._values.pop(0)
            return self._order.pop(0)
        return None

    def oldest_first(self):
        return self._order[:]

    def counts(self):
        return list(self._found)


def count_ways(rows, columns, blocked):
    if rows < 1 or columns < 1:
        return 0
    above = [0] * columns
    for row in range(rows):
        current = []
        for column in range(columns):
            if [row, column] in blocked:
                current.append(0)
            elif row == 0 and column == 0:
                current.append(1)
            else:
                current.append(above[column] + (current[-1] if current else 0))
        above = current
    return above[-1]
"""

_KEYS = ("a", "b", "c", "d", "e")


def _draw(rng: Random) -> Case:
    if rng.random() < 0.35:
        rows, columns = rng.randrange(0, 6), rng.randrange(1, 6)
        cells = [[row, column] for row in range(rows) for column in range(columns) if rng.random() < 0.12]
        return [call("count_ways", rows, columns, cells)]
    calls: list[Call] = [call("RecentCache", rng.randrange(0 if rng.random() < 0.05 else 1, 4))]
    for _ in range(rng.randrange(4, 13)):
        key = rng.choice(_KEYS)
        calls.append(call(".store", key, rng.randrange(100)) if rng.random() < 0.55 else call(".lookup", key, -1))
    return [*calls, call(".oldest_first"), call(".counts")]


CACHING = Template(
    name="caching",
    source=_SOURCE,
    independent=_INDEPENDENT,
    names={
        "RecentCache": ("RecentCache", "LruCache", "BoundedStore"),
        "lookup": ("lookup", "fetch", "find_value"),
        "store": ("store", "put", "remember"),
        "oldest_first": ("oldest_first", "ordered_keys", "queue_of_keys"),
        "counts": ("counts", "hit_counts", "tally"),
        "count_ways": ("count_ways", "num_paths", "ways_through"),
        "capacity": ("capacity", "room", "max_entries"),
        "removed": ("removed", "evicted", "dropped"),
        "walls": ("walls", "obstacles", "closed"),
        "known": ("known", "memo", "seen"),
    },
    draw=_draw,
    edges=[
        [call("RecentCache", 0)],
        [
            call("RecentCache", 1),
            call(".store", "a", 1),
            call(".store", "a", 2),
            call(".lookup", "a", 0),
            call(".store", "b", 3),
            call(".oldest_first"),
        ],
        [
            call("RecentCache", 2),
            call(".store", "a", 1),
            call(".store", "b", 2),
            call(".lookup", "a", 0),
            call(".store", "c", 3),
            call(".oldest_first"),
            call(".counts"),
        ],
        [
            call("RecentCache", 2),
            call(".store", "a", 1),
            call(".store", "b", 2),
            call(".store", "a", 5),
            call(".store", "c", 3),
            call(".lookup", "a", 0),
            call(".lookup", "b", 9),
            call(".counts"),
        ],
        [call("RecentCache", 3), call(".lookup", "x", 7), call(".counts")],
        [call("count_ways", 1, 1, [])],
        [call("count_ways", 1, 1, [[0, 0]])],
        [call("count_ways", 2, 2, [[1, 1]])],
        [call("count_ways", 3, 3, [[1, 1]])],
        [call("count_ways", 4, 3, [])],
        [call("count_ways", 2, 5, [[0, 3]])],
        [call("count_ways", 0, 3, [])],
    ],
)
