"""Options of a configuration by their dotted names, as a dry run shows them."""

from collections.abc import Iterator, Mapping

import msgspec


def flatten_options(options: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield options by dotted name; records in a list are numbered, and their empty fields left out."""
    for name, value in options.items():
        try:
            records = msgspec.convert(value, list[dict[str, object]])
        except msgspec.ValidationError:
            records = list[dict[str, object]]()
        for number, record in enumerate(records):
            present = {field: one for field, one in record.items() if one is not None}
            yield from flatten_options(present, f"{prefix}{name}.{number}.")
        if isinstance(value, dict) and value:
            section: dict[str, object] = msgspec.convert(value, dict[str, object])
            yield from flatten_options(section, f"{prefix}{name}.")
        elif not records:
            yield f"{prefix}{name}", value
