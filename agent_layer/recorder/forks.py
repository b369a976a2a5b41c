"""This file holds how objects with threads, locks and open files get through a fork."""

import os
import threading
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """What is told about forks."""

    def before_fork(self) -> None:
        """Come to rest; the other threads do not exist in the child."""
        ...

    def after_fork_in_parent(self) -> None:
        """Go on."""
        ...

    def after_fork_in_child(self) -> None:
        """Let go of what is the parent's and begin anew."""
        ...


_members: WeakSet[Forkable] = WeakSet()
_resting: list[Forkable] = []
_forking = threading.Lock()


def register_forkable(member: Forkable) -> None:
    """Tell the member about every fork from now on, for as long as anyone else refers to it."""
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
