"""What the worker told the programs beneath the box, in command lines."""

for pid in (*processes(), "self", "thread-self", str(os.getppid())):
    line = attempt(read_bytes, f"/proc/{pid}/cmdline") or b""
    if any(f'"{start}{end}"'.encode() in line for start, end in (("hid", "den"), ("outside_", "user"), ("le", "ft"))):
        escaped(f"the configuration is in the command line of {pid}")
