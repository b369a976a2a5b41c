"""Parts of a configuration that a user chooses by name: ``{name: success_between, low: 0.1}``.

A part is one file here: a record with its options, tagged with its name, and one method. Its registration is its line
in one of the unions of ``registry.py``. Parts are pure, so that a run that was stopped goes on as if it had not.
"""

import msgspec


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="name"):
    """Base of all parts: a misspelt option is an error."""
