"""Objects that a forked interpreter could have inherited."""

import gc

for found in gc.get_objects():
    if isinstance(found, dict):
        for key, value in list(found.items()):
            if isinstance(value, (str, bytes)) and found is not FACTS:
                if is_secret(value.encode(errors="replace") if isinstance(value, str) else value):
                    escaped(f"an object with the secret under {key!r}")
