"""Tables of Apache Arrow, which need the extra ``arrow``."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from agent_layer.errors import BadInputError
from agent_layer.infra import install_command
from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.store.arrow.columns import JSON as JSON
    from agent_layer.store.arrow.columns import json_text as json_text
    from agent_layer.store.arrow.steps import STEP_SCHEMA as STEP_SCHEMA
    from agent_layer.store.arrow.steps import tabulate_steps as tabulate_steps
    from agent_layer.store.arrow.stream import tabulate_stream as tabulate_stream
    from agent_layer.store.arrow.trajectories import (
        TRAJECTORY_SCHEMA as TRAJECTORY_SCHEMA,
    )
    from agent_layer.store.arrow.trajectories import (
        stream_rows as stream_rows,
    )
    from agent_layer.store.arrow.trajectories import (
        tabulate_rows as tabulate_rows,
    )
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.store.arrow.columns": (
                "JSON",
                "json_text",
            ),
            "agent_layer.store.arrow.steps": (
                "STEP_SCHEMA",
                "tabulate_steps",
            ),
            "agent_layer.store.arrow.stream": ("tabulate_stream",),
            "agent_layer.store.arrow.trajectories": (
                "TRAJECTORY_SCHEMA",
                "stream_rows",
                "tabulate_rows",
            ),
        },
    )

for _package in ("pyarrow", "pandas"):
    if find_spec(_package) is None:
        raise BadInputError(
            f"tables: expected the package {_package!r}, which is not installed; {install_command('arrow')}"
        )
