"""Tables of Apache Arrow, which need the extra ``arrow``."""

from importlib.util import find_spec

from agent_layer.errors import BadInputError
from agent_layer.infra import install_command

for _package in ("pyarrow", "pandas"):
    if find_spec(_package) is None:
        raise BadInputError(
            f"tables: expected the package {_package!r}, which is not installed; {install_command('arrow')}"
        )
