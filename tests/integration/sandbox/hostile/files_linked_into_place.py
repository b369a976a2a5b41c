"""An unnamed file that gets its name outside."""

file = attempt(os.open, "/usr/bin", os.O_TMPFILE | os.O_RDWR, 0o755)
if file is not None:
    escaped("a file in /usr/bin")
file = os.open("/tmp", os.O_TMPFILE | os.O_RDWR, 0o755)
if syscall("linkat", file, b"", -100, b"/usr/bin/planted", 0x1000)[0] == 0:
    escaped("a file in /usr/bin")
if syscall("renameat2", -100, b"/usr/bin/env", -100, b"/tmp/env", 2)[0] == 0:
    escaped("a program was exchanged")
