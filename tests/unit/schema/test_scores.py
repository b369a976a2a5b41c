"""A number of any type is a score; what is none is refused with a sentence that names it."""

import subprocess
import sys

import pytest

from agent_layer.errors import BadInputError
from agent_layer.schema import plain_number, read_score

from ...numbers import NO_NUMBERS, NOT_FINITE, NUMBERS


@pytest.mark.parametrize(
    ("value", "score"), [one[1:] for one in NUMBERS], ids=[one[0] for one in NUMBERS], indirect=["value"]
)
def test_a_number_of_any_type_is_a_score(value, score):
    assert type(read_score(value, "s")) is float
    assert read_score(value, "s") == score
    assert type(plain_number(value)) in (bool, int, float)


@pytest.mark.parametrize(
    "value", [*NOT_FINITE.values(), *NO_NUMBERS.values()], ids=[*NOT_FINITE, *NO_NUMBERS], indirect=True
)
def test_what_is_no_finite_number_is_refused_by_name(value):
    with pytest.raises(BadInputError, match=rf"^score 's': expected a finite number, found .*{type(value).__name__}; "):
        read_score(value, "score 's'")


def test_numpy_is_not_imported_for_it():
    code = "import sys, tracer, envs.grading.calling; sys.exit('numpy' in sys.modules)"

    subprocess.run([sys.executable, "-c", code], check=True)
