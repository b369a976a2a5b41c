"""The quota once for each writable place."""

total = 0
for place in ("/work", "/tmp", "/dev/shm", "/run"):
    try:
        for number in range(512):
            with open(f"{place}/f{number}", "wb") as file:
                file.write(b"x" * (1 << 20))
                total += 1
    except OSError as error:
        print(place, error)
if total >= 64:
    escaped(f"{total} MiB")
