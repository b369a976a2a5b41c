"""Every file that can be read, for the secret."""

for top in ("/etc", "/run", "/tmp", "/work", "/dev/shm"):
    for folder, _, names in os.walk(top):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and is_secret(attempt(read_bytes, path, 1 << 20) or b""):
                escaped(path)
