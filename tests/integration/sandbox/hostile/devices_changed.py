"""The devices that there are, changed."""

for name in ("null", "zero", "urandom"):
    for change in (lambda path: os.chmod(path, 0o600), os.unlink, lambda path: os.rename(path, "/tmp/x")):
        try:
            change(f"/dev/{name}")
            escaped(name)
        except OSError as error:
            print(error)
