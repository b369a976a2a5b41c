"""Accounts of a bank."""

from random import Random

from envs.tasksets.repair.programs.template import Call, Case, Template, call

_SOURCE = '''\
"""Accounts, with whole cents, a limit of credit and a history."""


def interest(balance, rate, days):
    """Return the interest of some days in cents; the rate is per year, in hundredths of a percent."""
    if balance <= 0:
        return 0
    return balance * rate * days // (365 * 10000)


class Ledger:
    """Balances by owner."""

    def __init__(self, credit):
        self.credit = credit
        self.balances = {}
        self.history = []

    def open_account(self, owner):
        """Begin with nothing; an owner has one account."""
        if owner in self.balances:
            raise ValueError("the owner has an account")
        self.balances[owner] = 0

    def deposit(self, owner, cents):
        """Add to a balance, and return it."""
        if cents <= 0:
            raise ValueError("a deposit is positive")
        self.balances[owner] += cents
        self.history.append(["deposit", owner, cents])
        return self.balances[owner]

    def withdraw(self, owner, cents):
        """Take from a balance, and return it; it may fall to the limit of credit."""
        if cents <= 0:
            raise ValueError("a withdrawal is positive")
        if self.balances[owner] - cents < -self.credit:
            raise ValueError("the credit does not allow it")
        self.balances[owner] -= cents
        self.history.append(["withdraw", owner, cents])
        return self.balances[owner]

    def transfer(self, source, target, cents):
        """Move cents between two accounts, or nothing at all."""
        if source == target or target not in self.balances:
            raise ValueError("a transfer needs another account")
        self.withdraw(source, cents)
        self.deposit(target, cents)

    def close_month(self, rate):
        """Add the interest of 30 days to every account; return the sum of it."""
        paid = 0
        for owner in sorted(self.balances):
            earned = interest(self.balances[owner], rate, 30)
            if earned > 0:
                self.balances[owner] += earned
                self.history.append(["interest", owner, earned])
                paid += earned
        return paid

    def statement(self, owner):
        """Return the entries of an owner, newest first, and the balance."""
        entries = [[kind, cents] for kind, name, cents in self.history if name == owner]
        return [entries[::-1], self.balances[owner]]
'''

_INDEPENDENT = """\
def interest(balance, rate, days):
    return 0 if balance < 0 else (days * rate * balance) // 3650000


class Ledger:
    def __init__(self, credit):
        self._most = credit
        self._accounts = {}

    def _book(self, owner, kind, cents, change):
        account = self._accounts[owner]
        account[0] += change
        account[1].insert(0, [kind, cents])
        return account[0]

    def open_account(self, owner):
        if self._accounts.get(owner):
            raise ValueError(owner)
        self._accounts[owner] = [0, []]

    def deposit(self, owner, cents):
        if not cents > 0:
            raise ValueError(cents)
        return self._book(owner, "deposit", cents, cents)

    def withdraw(self, owner, cents):
        if not cents > 0:
            raise ValueError(cents)
        if cents > self._accounts[owner][0] + self._most:
            raise ValueError(cents)
        return self._book(owner, "withdraw", cents, -cents)

    def transfer(self, source, target, cents):
        others = [name for name in self._accounts if name != source]
        if target not in others:
            raise ValueError(target)
        if source not in self._accounts and cents > 0:
            raise KeyError(source)
        self.withdraw(source, cents)
        self.deposit(target, cents)

    def close_month(self, rate):
        before = sum(account[0] for account in self._accounts.values())
        for owner, account in self._accounts.items():
            gain = interest(account[0], rate, 30)
            if gain:
                self._book(owner, "interest", gain, gain)
        return sum(account[0] for account in self._accounts.values()) - before

    def statement(self, owner):
        balance, entries = self._accounts[owner]
        return [list(entries), balance]
"""

_OWNERS = ("ada", "ben", "eve")


def _draw(rng: Random) -> Case:
    if rng.random() < 0.15:
        return [call("interest", rng.randrange(-2000, 900000), rng.randrange(0, 900), rng.randrange(0, 400))]
    calls: list[Call] = [call("Ledger", rng.choice([0, 100, 500]))]
    calls += [call(".open_account", owner) for owner in _OWNERS[: rng.randrange(1, 4)]]
    for _ in range(rng.randrange(4, 11)):
        calls.append(_draw_step(rng))
    return [*calls, *(call(".statement", owner) for owner in _OWNERS)]


def _draw_step(rng: Random) -> Call:
    owner, cents = rng.choice(_OWNERS), rng.choice([0, 100, 250, 900, 5000, rng.randrange(-5, 90000)])
    kind = rng.randrange(7)
    if kind < 3:
        return call(".deposit", owner, cents)
    if kind == 3:
        return call(".withdraw", owner, cents)
    if kind < 6:
        return call(".transfer", owner, rng.choice(_OWNERS), cents)
    return rng.choice([call(".close_month", rng.randrange(0, 900)), call(".open_account", owner)])


LEDGER = Template(
    name="ledger",
    source=_SOURCE,
    independent=_INDEPENDENT,
    names={
        "Ledger": ("Ledger", "Bank", "Accounts"),
        "interest": ("interest", "yield_of", "gain_for"),
        "open_account": ("open_account", "register", "add_owner"),
        "deposit": ("deposit", "pay_in", "credit_cents"),
        "withdraw": ("withdraw", "pay_out", "debit"),
        "transfer": ("transfer", "move_cents", "send"),
        "close_month": ("close_month", "end_month", "add_interest"),
        "statement": ("statement", "extract_of", "overview"),
        "owner": ("owner", "holder", "customer"),
        "cents": ("cents", "amount", "money"),
        "earned": ("earned", "share", "addition"),
    },
    draw=_draw,
    edges=[
        [call("interest", 0, 500, 30)],
        [call("interest", -100, 500, 30)],
        [call("interest", 3650000, 1, 1)],
        [call("interest", 3649999, 1, 1)],
        [
            call("Ledger", 100),
            call(".open_account", "ada"),
            call(".withdraw", "ada", 100),
            call(".withdraw", "ada", 1),
            call(".deposit", "ada", 0),
            call(".withdraw", "ada", 0),
            call(".deposit", "ada", 1),
            call(".withdraw", "ada", 1),
            call(".statement", "ada"),
        ],
        [call("Ledger", 0), call(".open_account", "ada"), call(".open_account", "ada")],
        [
            call("Ledger", 0),
            call(".open_account", "ada"),
            call(".open_account", "ben"),
            call(".deposit", "ada", 500),
            call(".transfer", "ada", "ben", 200),
            call(".transfer", "ada", "ada", 100),
            call(".transfer", "ada", "zoe", 100),
            call(".transfer", "ada", "ben", 301),
            call(".transfer", "ada", "ben", 300),
            call(".statement", "ada"),
            call(".statement", "ben"),
        ],
        [
            call("Ledger", 900000),
            call(".open_account", "ben"),
            call(".open_account", "ada"),
            call(".deposit", "ada", 800000),
            call(".deposit", "ben", 400000),
            call(".close_month", 300),
            call(".close_month", 0),
            call(".statement", "ada"),
            call(".withdraw", "ada", 900000),
            call(".close_month", 600),
            call(".statement", "ada"),
            call(".statement", "ben"),
        ],
        [
            call("Ledger", 0),
            call(".open_account", "ada"),
            call(".deposit", "ada", 122),
            call(".close_month", 1000),
            call(".deposit", "ada", 1),
            call(".close_month", 1000),
            call(".statement", "ada"),
        ],
    ],
)
