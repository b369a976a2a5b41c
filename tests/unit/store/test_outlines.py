"""Outlines name fields of records as the records do: what a shipper reads of a log is what a reader finds."""

import msgspec
import pytest

from agent_layer.schema import Action, Observation, StepPart, TrainedTokens
from agent_layer.store.segments.outline import ActionOutline, ObservationOutline, StepOutline, TrainedTokensOutline

PAIRS = [
    (ActionOutline, Action),
    (StepOutline, StepPart),
    (ObservationOutline, Observation),
    (TrainedTokensOutline, TrainedTokens),
]
SHORTER = {"actions", "message"}
"""Fields that an outline keeps in part."""


@pytest.mark.parametrize(("outline", "record"), PAIRS)
def test_an_outline_repeats_fields_of_its_record(outline, record):
    whole = {field.encode_name: field for field in msgspec.structs.fields(record)}

    assert outline.__struct_config__.tag == record.__struct_config__.tag
    for field in msgspec.structs.fields(outline):
        known = whole[field.encode_name]
        if field.encode_name not in SHORTER:
            assert (field.type, field.default) == (known.type, known.default), field.name
            assert field.default_factory == known.default_factory
