"""Files that are huge and empty."""

for number in range(200):
    with open(f"huge{number}", "wb") as file:
        for size in (1 << 62, 1 << 45, 33 << 20):
            if attempt(file.truncate, size) is not None:
                escaped(f"a file of {size} bytes")
        file.truncate(32 << 20)
