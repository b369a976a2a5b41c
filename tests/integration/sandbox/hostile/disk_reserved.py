"""Space that is reserved and never written."""

for number in range(64):
    with open(f"/tmp/f{number}", "wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, 16 << 20)
        except OSError as error:
            print("stopped at", number, error)
            break
else:
    escaped("1 GiB reserved")
