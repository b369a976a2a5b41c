"""The doctor's findings about keys that travel in plain text, or stay valid for too long."""

import pytest

from agent_layer.cli.services import doctor
from agent_layer.settings import Settings


@pytest.mark.parametrize(
    ("changes", "subjects"),
    [
        ({}, set()),
        ({"gateway_url": "http://127.0.0.1:1"}, set()),
        ({"gateway_url": "https://gateway.example:1"}, set()),
        ({"gateway_url": "http://192.0.2.1:1"}, {"tls"}),
        ({"former_api_keys": "older-key"}, {"keys"}),
        ({"ingest_url": "http://127.0.0.1:1", "ingest_key": "key"}, set()),
        ({"ingest_url": "http://127.0.0.1:1"}, {"keys"}),
        ({"ingest_url": "http://192.0.2.1:1", "ingest_key": "key"}, {"tls"}),
    ],
)
def test_what_is_unsafe_about_keys_is_noted(tmp_path, changes, subjects):
    assert {one.subject for one in doctor._look_at_exposure(Settings(dir=tmp_path, **changes))} == subjects
