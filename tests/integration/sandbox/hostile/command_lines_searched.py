"""The worker's command line."""

for pid in (*processes(), "self", "1", str(os.getppid())):
    if is_secret(attempt(read_bytes, f"/proc/{pid}/cmdline") or b""):
        escaped("the secret is in a command line")
