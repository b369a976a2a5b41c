"""A file of the host, by its own path and by detours."""

path = FACTS["canary"]
for start in ("", "/proc/1/root", "/proc/self/root", "/proc/self/cwd/../../..", "/run/..", "/proc/1/cwd/.."):
    if attempt(open, start + path):
        escaped(start + path)
