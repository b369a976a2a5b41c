"""Names that are no text, as long as names can be, or have line ends and escape sequences."""

NAMES = (
    b"\xff\xfe",
    b"new\nline",
    b"\x1b[2J\x1b]0;owned\x07",
    b" ",
    b"-rf",
    b"\xed\xa0\x80",
    b"a" * 255,
    b"\xe2\x80\xae",
)
for top in (b"/work", b"/tmp", b"/dev/shm"):
    for name in NAMES:
        with open(top + b"/" + name, "wb") as file:
            file.write(b"x")
