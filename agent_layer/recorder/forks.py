"""Fork safety for objects with threads, locks and open files."""

import os
import threading
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """An object with hooks around a fork."""

    def before_fork(self) -> None:
        """Reach a consistent state; the child has no other threads."""
        ...

    def after_fork_in_parent(self) -> None:
        """Continue."""
        ...

    def after_fork_in_child(self) -> None:
        """Release what belongs to the parent, and start with a fresh state."""
        ...


_members: WeakSet[Forkable] = WeakSet()
_resting: list[Forkable] = []
_forking = threading.Lock()


def register_forkable(member: Forkable) -> None:
    """Call the member's hooks at every fork from now on, as long as other references to it exist."""
    _members.add(member)


def _before() -> None:
    _forking.acquire()
    _resting.extend(_members)
    for member in _resting:
        member.before_fork()


def _after_in_parent() -> None:
    for member in _resting:
        member.after_fork_in_parent()
    _end()


def _after_in_child() -> None:
    for member in _resting:
        member.after_fork_in_child()
    _end()


def _end() -> None:
    _resting.clear()
    _forking.release()


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
