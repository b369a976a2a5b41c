"""Tables of a query: all of its rows, and a page of them only where a page was asked for."""

import gc
import tracemalloc

import msgspec
import pytest

from agent_layer.store import open_store
from agent_layer.store.arrow import trajectories
from agent_layer.store.index import search

from ...builders import attempt
from ...stored import write_segment

NUM = 100


@pytest.fixture
def store(settings, monkeypatch):
    monkeypatch.setattr(search, "_PAGE", 7)
    monkeypatch.setattr(trajectories, "_BATCH_ROWS", 10)
    store = open_store(settings)
    write_segment(
        store,
        *(
            record
            for number in range(NUM)
            for record in attempt(f"t{number:03}.0-0", at=float(number), task_type=["even", "odd"][number % 2])
        ),
    )
    return store


@pytest.mark.parametrize("order", ["newest", "oldest"])
@pytest.mark.parametrize(("filters", "step"), [({}, 1), ({"task_type": "odd"}, 2), ({"task_type": "none"}, 0)])
def test_a_query_without_a_limit_becomes_a_table_of_all_its_rows(store, order, filters, step):
    questions = [f"t{number:03}.0-0" for number in range(NUM) if step and number % step == step - 1]
    answer = store.query(order=order, **filters)

    for _ in range(2):
        assert list(answer.to_pandas().index) == (questions if order == "oldest" else questions[::-1])
    assert answer.to_arrow().num_rows == sum(batch.num_rows for batch in answer.to_reader()) == len(questions)


@pytest.mark.parametrize("limit", [1, 7, 32, 50, NUM, 1_000])
def test_a_query_with_a_limit_becomes_a_table_of_its_page(store, limit):
    page = store.query(limit=limit)

    assert page.to_arrow().num_rows == len(page.items) == min(limit, NUM)


def test_a_query_that_goes_on_behind_a_page_becomes_a_table_of_the_rest(store):
    page = store.query(limit=20)

    assert store.query(cursor=page.cursor).to_arrow().num_rows == NUM - 20
    assert store.query(cursor=page.cursor, limit=20).to_arrow().num_rows == 20


def test_the_first_page_is_a_page_like_any_other(store):
    first = store.query()

    assert len(first.items) == 32
    assert msgspec.json.encode(first) == msgspec.json.encode(store.query(limit=32))


def test_a_stream_of_rows_holds_a_few_pages_in_memory(store, monkeypatch):
    held = []
    real = search.find_trajectories

    def find(*given):
        gc.collect()  # or it would count what waits to be collected, too
        held.append(tracemalloc.get_traced_memory()[0])
        return real(*given)

    monkeypatch.setattr(search, "find_trajectories", find)
    list(store.query().to_reader())  # what is imported and kept once
    held.clear()
    tracemalloc.start()
    for _ in store.query().to_reader():
        pass
    tracemalloc.stop()

    assert len(held) > 8
    assert max(held[4:]) < 2 * max(held[2:4])
