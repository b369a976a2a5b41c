"""Fixtures that several folders of unit tests share."""

import pytest

from ..numbers import make_number


@pytest.fixture
def value(request: pytest.FixtureRequest) -> object:
    """The parameter of this name: a number of ``tests/numbers.py``, or what is none."""
    return make_number(request.param)
