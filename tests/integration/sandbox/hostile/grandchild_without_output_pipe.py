"""A vfork that never returns."""

pid = os.posix_spawn("/bin/sleep", ["sleep", "303"], {})
print("left", pid)
