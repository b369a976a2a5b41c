"""Standard descriptors, opened again through /proc with more rights than they were given with."""

for number in (0, 1, 2):
    for flags in (os.O_RDWR, os.O_RDONLY):
        file = attempt(os.open, f"/proc/self/fd/{number}", flags | os.O_NONBLOCK)
        if file is not None and number and is_secret(attempt(os.read, file, 4096) or b""):
            escaped("output of others")
os.write(1, b"begun\n")  # the line of the prelude may have been read above
