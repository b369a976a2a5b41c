"""Ways through a network."""

from random import Random

from envs.tasksets.repair.programs.template import Case, Template, call

_SOURCE = '''\
"""Ways through a network; roads are triples of two places and a length, and lead both ways."""


def neighbours(roads):
    """Return for each place the places beside it, with the length of the way."""
    beside = {}
    for start, end, length in roads:
        beside.setdefault(start, []).append([end, length])
        beside.setdefault(end, []).append([start, length])
    return beside


def distances(roads, origin):
    """Return the length of the shortest way to each place that can be reached."""
    beside = neighbours(roads)
    known = {origin: 0}
    waiting = [origin]
    while waiting:
        waiting.sort(key=known.get)
        place = waiting.pop(0)
        for other, length in beside.get(place, []):
            reached = known[place] + length
            if other not in known or reached < known[other]:
                known[other] = reached
                if other not in waiting:
                    waiting.append(other)
    return known


def fewest_roads(roads, origin, target):
    """Return how many roads lead from one place to another at least; None: no way does."""
    beside = neighbours(roads)
    steps = 0
    border = [origin]
    visited = [origin]
    while border:
        if target in border:
            return steps
        following = []
        for place in border:
            for other, _ in beside.get(place, []):
                if other not in visited:
                    visited.append(other)
                    following.append(other)
        border = following
        steps += 1
    return None


def islands(roads, places):
    """Return groups of places that are connected, each sorted, the largest first."""
    groups = []
    placed = []
    for place in sorted(places):
        if place in placed:
            continue
        group = sorted(distances(roads, place))
        placed.extend(group)
        groups.append(group)
    return sorted(groups, key=lambda group: (-len(group), group))


def order_tasks(needs):
    """Return tasks after all that they need, alphabetically where there is a choice."""
    rest = {task: list(required) for task, required in needs.items()}
    ordered = []
    while rest:
        ready = [task for task in sorted(rest) if all(one in ordered for one in rest[task])]
        if not ready:
            raise ValueError("tasks need each other")
        ordered.append(ready[0])
        del rest[ready[0]]
    return ordered
'''

_INDEPENDENT = """\
def _places(roads):
    found = []
    for start, end, _ in roads:
        found += [start, end]
    return found


def distances(roads, origin):
    best = {origin: 0}
    for _ in range(len(_places(roads)) + 1):
        for start, end, length in roads:
            for one, two in ((start, end), (end, start)):
                if one in best:
                    best[two] = min(best.get(two, best[one] + length), best[one] + length)
    return best


def fewest_roads(roads, origin, target):
    return distances([[start, end, 1] for start, end, _ in roads], origin).get(target)


def islands(roads, places):
    parent = {}

    def find(place):
        parent.setdefault(place, place)
        while parent[place] != place:
            place = parent[place]
        return place

    for start, end, _ in roads:
        parent[find(start)] = find(end)
    roots = {find(place) for place in places}
    everything = set(places) | set(parent)
    groups = [sorted(place for place in everything if find(place) == root) for root in roots]
    groups.sort()
    groups.sort(key=len, reverse=True)
    return groups


def order_tasks(needs):
    done = []
    while len(done) < len(needs):
        for task in sorted(needs):
            if task not in done and set(needs[task]) <= set(done):
                done.append(task)
                break
        else:
            raise ValueError(needs)
    return done
"""

_PLACES = "abcdefg"


def _draw_roads(rng: Random) -> list[list[object]]:
    roads: list[list[object]] = []
    for _ in range(rng.randrange(1, 9)):
        start, end = rng.sample(_PLACES, 2)
        roads.append([start, end, rng.randrange(1, 10)])
    return roads


def _draw(rng: Random) -> Case:
    kind = rng.randrange(6)
    if kind < 2:
        return [call("distances", _draw_roads(rng), rng.choice(_PLACES))]
    if kind == 2:
        return [call("fewest_roads", _draw_roads(rng), rng.choice(_PLACES), rng.choice(_PLACES))]
    if kind == 3:
        return [call("islands", _draw_roads(rng), rng.sample(_PLACES, rng.randrange(0, 7)))]
    names = rng.sample(_PLACES, rng.randrange(1, 7))
    needs: dict[str, list[str]] = {}
    for at, name in enumerate(names):
        pool = names if rng.random() < 0.05 else names[:at]
        needs[name] = rng.sample(pool, min(len(pool), rng.randrange(0, 3)))
    return [call("order_tasks", needs)]


ROUTES = Template(
    name="routes",
    source=_SOURCE,
    independent=_INDEPENDENT,
    names={
        "neighbours": ("neighbours", "adjacent", "links_of"),
        "distances": ("distances", "shortest_lengths", "travel_lengths"),
        "fewest_roads": ("fewest_roads", "hops", "num_roads"),
        "islands": ("islands", "components", "connected_groups"),
        "order_tasks": ("order_tasks", "topological", "plan"),
        "roads": ("roads", "edges", "connections"),
        "origin": ("origin", "source", "home"),
        "beside": ("beside", "nearby", "around"),
        "reached": ("reached", "candidate", "via_place"),
        "border": ("border", "frontier", "edge_places"),
    },
    draw=_draw,
    edges=[
        [call("distances", [], "a")],
        [call("distances", [["a", "b", 4], ["b", "c", 1], ["a", "c", 9]], "a")],
        [call("distances", [["a", "b", 9], ["a", "c", 1], ["c", "d", 1], ["d", "b", 1], ["b", "e", 1]], "a")],
        [call("distances", [["a", "b", 2], ["c", "d", 2]], "b")],
        [call("fewest_roads", [["a", "b", 2]], "a", "a")],
        [call("fewest_roads", [["a", "b", 2]], "a", "b")],
        [call("fewest_roads", [["a", "b", 2]], "a", "c")],
        [call("fewest_roads", [["a", "b", 2], ["b", "c", 2], ["c", "d", 1], ["a", "d", 50]], "a", "c")],
        [call("fewest_roads", [], "a", "b")],
        [call("islands", [], ["c", "a", "b"])],
        [call("islands", [["a", "b", 1], ["c", "d", 1], ["d", "e", 1]], ["a", "c", "f"])],
        [call("islands", [["a", "b", 1]], [])],
        [call("order_tasks", {})],
        [call("order_tasks", {"a": ["b"], "b": ["c"], "c": []})],
        [call("order_tasks", {"b": [], "a": [], "c": ["b"]})],
        [call("order_tasks", {"a": ["b"], "b": ["a"], "c": []})],
        [call("order_tasks", {"d": ["a", "c"], "a": [], "c": ["a"], "b": ["d"]})],
    ],
)
