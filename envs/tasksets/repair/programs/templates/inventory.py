"""Stock of a shop."""

from random import Random

from envs.tasksets.repair.programs.template import Call, Case, Template, call

_SOURCE = '''\
"""Stock of a shop: what is there, what runs low, what it is worth."""


def line_total(price, quantity, discount):
    """Return the price of one line in cents, after a discount in percent; fractions count for the shop."""
    gross = price * quantity
    return gross - gross * discount // 100


class Inventory:
    """Pieces of each item. Items without a piece are not listed."""

    def __init__(self, threshold):
        self.threshold = threshold
        self.stock = {}

    def receive(self, item, quantity):
        """Add pieces; return how many there are now."""
        if quantity <= 0:
            raise ValueError("a delivery has at least one piece")
        self.stock[item] = self.stock.get(item, 0) + quantity
        return self.stock[item]

    def ship(self, item, quantity):
        """Remove as many pieces as there are, at most those asked for; return how many."""
        present = self.stock.get(item, 0)
        shipped = min(present, quantity)
        if shipped == present:
            self.stock.pop(item, None)
        else:
            self.stock[item] = present - shipped
        return shipped

    def running_low(self):
        """Return items with fewer pieces than the threshold, sorted."""
        return sorted(item for item, count in self.stock.items() if count < self.threshold)

    def worth(self, prices):
        """Return the sum of all lines; ten pieces or more get a discount of 15 percent."""
        total = 0
        for item, count in self.stock.items():
            discount = 15 if count >= 10 else 0
            total += line_total(prices.get(item, 0), count, discount)
        return total
'''

_INDEPENDENT = """\
def line_total(price, quantity, discount):
    reduction, _ = divmod(price * quantity * discount, 100)
    return price * quantity - reduction


class Inventory:
    def __init__(self, threshold):
        self._limit = threshold
        self._pieces = []

    def _find(self, item):
        for position, entry in enumerate(self._pieces):
            if entry[0] == item:
                return position
        return None

    def receive(self, item, quantity):
        if not quantity > 0:
            raise ValueError(quantity)
        position = self._find(item)
        if position is None:
            self._pieces.append([item, quantity])
            return quantity
        self._pieces[position][1] += quantity
        return self._pieces[position][1]

    def ship(self, item, quantity):
        position = self._find(item)
        if position is None:
            return min(0, quantity)
        entry = self._pieces[position]
        taken = quantity if quantity < entry[1] else entry[1]
        entry[1] -= taken
        if entry[1] == 0:
            del self._pieces[position]
        return taken

    def running_low(self):
        found = [entry[0] for entry in self._pieces if self._limit > entry[1]]
        found.sort()
        return found

    def worth(self, prices):
        lines = []
        for item, count in self._pieces:
            lines.append(line_total(prices[item] if item in prices else 0, count, 15 * (count > 9)))
        return sum(lines)
"""

_ITEMS = ("bolt", "cable", "drill", "fuse")


def _draw(rng: Random) -> Case:
    if rng.random() < 0.2:
        return [call("line_total", rng.randrange(1, 300), rng.randrange(1, 20), rng.randrange(0, 60))]
    calls: list[Call] = [call("Inventory", rng.randrange(1, 9))]
    calls += [_draw_step(rng) for _ in range(rng.randrange(2, 9))]
    return [*calls, call(".running_low"), _worth(rng)]


def _draw_step(rng: Random) -> Call:
    kind = rng.randrange(5)
    if kind < 2:
        return call(".receive", rng.choice(_ITEMS), rng.randrange(-1, 14))
    if kind < 4:
        return call(".ship", rng.choice(_ITEMS), rng.randrange(0, 9))
    return rng.choice([call(".running_low"), _worth(rng)])


def _worth(rng: Random) -> Call:
    return call(".worth", {item: rng.randrange(1, 99) for item in _ITEMS if rng.random() < 0.8})


INVENTORY = Template(
    name="inventory",
    source=_SOURCE,
    independent=_INDEPENDENT,
    names={
        "line_total": ("line_total", "line_price", "price_of_line"),
        "Inventory": ("Inventory", "Warehouse", "Stockroom"),
        "receive": ("receive", "deliver", "put_in"),
        "ship": ("ship", "send_out", "take_out"),
        "running_low": ("running_low", "scarce", "to_reorder"),
        "worth": ("worth", "value_of_all", "appraise"),
        "quantity": ("quantity", "pieces", "amount"),
        "present": ("present", "available", "on_shelf"),
        "gross": ("gross", "full_price", "undiscounted"),
        "threshold": ("threshold", "reorder_level", "minimum"),
    },
    draw=_draw,
    edges=[
        [call("line_total", 99, 1, 50)],
        [call("line_total", 7, 3, 0)],
        [call("Inventory", 3), call(".receive", "bolt", 0), call(".receive", "bolt", 1), call(".receive", "bolt", 1)],
        [
            call("Inventory", 5),
            call(".receive", "fuse", 5),
            call(".running_low"),
            call(".ship", "fuse", 1),
            call(".running_low"),
            call(".ship", "fuse", 4),
            call(".running_low"),
            call(".ship", "fuse", 1),
            call(".running_low"),
        ],
        [call("Inventory", 2), call(".receive", "cable", 10), call(".worth", {"cable": 7}), call(".worth", {})],
        [call("Inventory", 2), call(".receive", "cable", 9), call(".worth", {"cable": 11})],
        [call("Inventory", 2), call(".receive", "a", 12), call(".receive", "b", 1), call(".worth", {"a": 5, "b": 9})],
        [call("Inventory", 4), call(".receive", "b", 1), call(".receive", "a", 1), call(".running_low")],
        [call("Inventory", 4), call(".receive", "b", 1), call(".ship", "b", 0), call(".worth", {"b": 3})],
        [call("Inventory", 4), call(".ship", "b", 0), call(".ship", "b", 2), call(".running_low")],
    ],
)
