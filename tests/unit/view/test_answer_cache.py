"""Pages share an answer while what it is made from stays as it is."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest

from agent_layer.view.answer_cache import AnswerCache

from ...waiting import scaled


class Maker:
    """Makes answers, and counts them."""

    def __init__(self) -> None:
        self.num_made = 0

    def __call__(self) -> bytes:
        self.num_made += 1
        return b"answer %d" % self.num_made


def test_an_answer_is_made_once_for_each_question_and_state():
    cache, make = AnswerCache(), Maker()

    questions = [cache.get(question, state, make).body for question, state in [("a", 1), ("a", 1), ("b", 1), ("a", 2)]]

    assert questions == [b"answer 1", b"answer 1", b"answer 2", b"answer 3"]


def test_of_many_that_ask_at_once_one_makes_the_answer():
    cache, make, begun, may_end = AnswerCache(), Maker(), Event(), Event()
    others = Barrier(4)

    def make_slowly() -> bytes:
        begun.set()
        may_end.wait(scaled(60))
        return make()

    def ask() -> bytes:
        others.wait(scaled(60))
        return cache.get("a", 1, make).body

    with ThreadPoolExecutor(4) as threads:
        first = threads.submit(cache.get, "a", 1, make_slowly)
        assert begun.wait(scaled(60))
        rest = [threads.submit(ask) for _ in range(3)]
        others.wait(scaled(60))
        may_end.set()
        assert {first.result(scaled(60)).body, *(one.result(scaled(60)) for one in rest)} == {b"answer 1"}


def test_a_failure_is_told_to_its_caller_and_not_kept():
    cache, make = AnswerCache(), Maker()

    def fail() -> bytes:
        raise LookupError("away")

    with pytest.raises(LookupError, match="away"):
        cache.get("a", 1, fail)
    assert cache.get("a", 1, make).body == b"answer 1"


def test_an_answer_is_made_again_after_a_while_and_the_oldest_is_forgotten():
    seconds = [0.0]
    cache, make = AnswerCache(lambda: seconds[0]), Maker()
    cache.get("a", 1, make)
    seconds[0] = 11.0
    assert cache.get("a", 1, make).body == b"answer 2"

    for number in range(32):
        cache.get(number, 1, make)
    assert cache.get("a", 1, make).body == b"answer 35"
