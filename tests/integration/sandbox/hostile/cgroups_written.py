"""Limits of its own cgroup, and a program that the kernel runs when it is empty."""

for top in ("/sys/fs/cgroup", "/tmp", "/proc/1/root/sys/fs/cgroup", "/proc/self/root/sys/fs/cgroup"):
    for path in (
        "memory/memory.limit_in_bytes",
        "memory.max",
        "release_agent",
        "cgroup.procs",
        "devices/devices.allow",
    ):
        try:
            with open(f"{top}/{path}", "r+") as file:
                file.write("max")
            escaped(path)
        except OSError as error:
            print(error)
