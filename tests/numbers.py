"""Numbers of the types in which scores come, and what looks like a score and is none.

torch takes seconds to import, so a function makes each of its numbers, and collection imports none (``make_number``).
"""

import math
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from types import FunctionType

import numpy as np


class _Grade(IntEnum):
    GOOD = 1


class _Half(float):
    """A subclass, as pandas and others have them."""


HALVES = {
    "float": 0.5,
    "float subclass": _Half(0.5),
    "numpy.float64": np.float64(0.5),
    "numpy.mean": np.mean([0, 1]),
    "numpy.float32": np.float32(0.5),
    "numpy.float16": np.float16(0.5),
    "numpy.longdouble": np.longdouble(0.5),
    "numpy array of no axis": np.array(0.5),
    "Decimal": Decimal("0.5"),
    "Fraction": Fraction(1, 2),
    "torch": lambda torch: torch.tensor(0.5),
    "torch.bfloat16": lambda torch: torch.tensor(0.5, dtype=torch.bfloat16),
    "torch with a gradient": lambda torch: torch.tensor(0.5, requires_grad=True),
}
ONES = {
    "bool": True,
    "int": 1,
    "IntEnum": _Grade.GOOD,
    "numpy.bool": np.bool_(True),  # noqa: FBT003 - its only argument
    "numpy.int64": np.int64(1),
    "numpy.uint8": np.uint8(1),
    "torch.bool": lambda torch: torch.tensor(True),  # noqa: FBT003 - its only argument
    "torch.int64": lambda torch: torch.tensor(1),
}
NUMBERS = [*((name, one, 0.5) for name, one in HALVES.items()), *((name, one, 1.0) for name, one in ONES.items())]
NOT_FINITE = {
    "nan": math.nan,
    "inf": math.inf,
    "-inf": -math.inf,
    "numpy nan": np.float32("nan"),
    "torch inf": lambda torch: torch.tensor(math.inf),
    "Decimal NaN": Decimal("NaN"),
    "Decimal Infinity": Decimal("Infinity"),
    "a huge integer": 10**400,
    "a huge fraction": Fraction(10**400),
}
NO_NUMBERS = {
    "text": "0.5",
    "bytes": b"1",
    "complex": 1j,
    "list": [1.0],
    "numpy array": np.array([0.5, 0.5]),
    "numpy array of one": np.array([0.5]),
    "torch of one": lambda torch: torch.tensor([0.5]),
    "numpy time": np.datetime64("2026-01-01"),
    "type": float,
    "object": object(),
}


def make_number(found: object) -> object:
    """Return the number that stands above, or that the function above makes."""
    if not isinstance(found, FunctionType):
        return found
    import torch  # noqa: PLC0415  # it takes seconds

    return found(torch)
