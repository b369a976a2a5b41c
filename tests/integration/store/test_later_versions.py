"""An index in which a later version has written: an older reader shows and finds all rows."""

import msgspec
import pytest

from agent_layer.errors import BadInputError
from agent_layer.store import open_store

from ...builders import attempt
from ...stored import write_segment


@pytest.fixture
def store(settings):
    """One row of this version, and one whose end a later version described."""
    store = open_store(settings)
    write_segment(store, *attempt("old.0-0", score=1.0))
    *rest, outcome, accepted = attempt("new.0-0", score=1.0)
    write_segment(store, *rest, msgspec.structs.replace(outcome, status="parked", cause="weather"), accepted)
    return store


def list_ids(store, **filters):
    return [row.trajectory_id for row in store.query(order="oldest", **filters).items]


def test_a_value_of_a_later_version_is_shown_found_and_counted(store):
    rows = {row.trajectory_id: row for row in store.scan()}

    assert (rows["new.0-0"].status, rows["new.0-0"].cause) == ("parked", "weather")
    assert rows["old.0-0"].status == "completed"
    for filters in ({"status": "parked"}, {"cause": "weather"}):
        assert list_ids(store, **filters) == ["new.0-0"]
        assert store.count(**filters) == 1
        assert store.explain(**filters).num_found == 1
    assert {line.by["status"]: line.count for line in store.summarise(["status"])} == {"completed": 1, "parked": 1}
    with pytest.raises(BadInputError, match="status 'parkd': expected one of queued"):
        store.query(status="parkd")


@pytest.mark.parametrize(
    ("field", "stored"),
    [
        ("split", "holdout"),
        ("attempt", "first"),
        ("num_steps", '{"sum":3}'),
        ("policy_max", "v2"),
        ("labels", '{"team":["a","b"]}'),
        ("given_labels", '{"team":7}'),
        ("agents", '[{"name":"solver"}]'),
        ("tools", "search,python"),
        ("ended_at", "2027-01-01"),
        ("a_later_field", "\x00"),
    ],
)
def test_one_field_in_another_form_costs_no_row(store, field, stored):
    store.redis.hset(store.keys.trajectory("new.0-0"), field, stored)

    assert sorted(list_ids(store)) == ["new.0-0", "old.0-0"]
    row = store.row("new.0-0")
    assert (row.status, row.reward) == ("parked", 1.0)
    assert getattr(row, field, None) in ("holdout", None, 0, [], {})
