"""The vocabulary: every record that crosses a boundary, how it is put together, and its stored form."""
