"""This file holds the guard before the tables of Apache Arrow: what they need comes with the extra ``arrow``."""

from importlib.util import find_spec

from agent_layer.errors import BadInputError

for _package in ("pyarrow", "pandas"):
    if find_spec(_package) is None:
        raise BadInputError(
            f"tables: expected the package {_package!r}, which is not installed; pip install 'agent-layer[arrow]'"
        )
