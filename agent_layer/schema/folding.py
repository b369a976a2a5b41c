"""This file holds how stored fields fit the records that read them: what a record does not know goes to ``unknown``.

What a newer reader has learned to know comes out of ``unknown`` again. How deep records lie inside one another is
worked out once per kind, so that values without a record inside are passed by.
"""

from collections.abc import Callable
from functools import cache
from typing import TypeAlias, cast

from msgspec import inspect

from agent_layer.schema.record import JsonObject, Record

__all__ = ["Fold", "fold_of"]

Fold: TypeAlias = Callable[[object], object]
"""Gives the fields of a record in the shape that its reader wants; changes nothing that it is given."""


@cache
def fold_of(kind: type[Record]) -> Fold:
    """Work out the fold of one kind of record."""
    return _fold_record(cast("inspect.StructType", inspect.type_info(kind)))


def _fold(form: inspect.Type) -> Fold | None:
    """Fold for values of this form; None when no record can lie inside."""
    match form:
        case inspect.StructType():
            return _fold_record(form)
        case inspect.ListType():
            return (fold := _fold(form.item_type)) and _fold_items(fold)
        case inspect.DictType():
            return (fold := _fold(form.value_type)) and _fold_values(fold)
        case inspect.UnionType():
            folds = [fold for fold in map(_fold, form.types) if fold is not None]
            return _fold_any(folds) if folds else None
        case _:
            return None


def _fold_record(form: inspect.StructType) -> Fold:
    known = {field.encode_name for field in form.fields} | {form.tag_field}
    folds = {field.encode_name: inner for field in form.fields if (inner := _fold(field.type))}

    def fold(value: object) -> object:
        if not isinstance(value, dict):
            return value
        fields = dict(cast("JsonObject", value))
        carried = fields.pop("unknown", None)
        if isinstance(carried, dict):
            fields = cast("JsonObject", carried) | fields
        unknown = {name: fields.pop(name) for name in [*fields] if name not in known}
        for name in fields.keys() & folds.keys():
            fields[name] = folds[name](fields[name])
        return fields | {"unknown": unknown} if unknown else fields

    return fold


def _fold_items(fold: Fold) -> Fold:
    return lambda value: [fold(item) for item in cast("list[object]", value)] if isinstance(value, list) else value


def _fold_values(fold: Fold) -> Fold:
    def fold_all(value: object) -> object:
        if not isinstance(value, dict):
            return value
        return {key: fold(item) for key, item in cast("JsonObject", value).items()}

    return fold_all


def _fold_any(folds: list[Fold]) -> Fold:
    def fold_first(value: object) -> object:
        return next((folded for fold in folds if (folded := fold(value)) is not value), value)

    return fold_first
