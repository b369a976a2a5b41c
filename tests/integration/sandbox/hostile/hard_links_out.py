"""Second names of the host's programs."""

for path in ("/usr/bin/su", "/usr/bin/passwd", "/usr/bin/env", "/etc/passwd"):
    for place in ("/tmp/x", "/work/x"):
        if attempt(os.link, path, place) is None and os.path.lexists(place):
            escaped(path)
