"""What the kernel shows of the first process, by every way to its folder."""

NAMES = (
    *("auxv", "cwd", "environ", "exe", "fd", "io", "map_files", "maps", "mem", "pagemap", "personality", "root"),
    *("smaps", "stack", "syscall", "task/1/fd", "task/1/mem", "task/1/root", "timers"),
)
WRITABLE = (
    "autogroup",
    "clear_refs",
    "coredump_filter",
    "mem",
    "oom_score_adj",
    "setgroups",
    "timerslack_ns",
    "uid_map",
)
for top in ("/proc/1", "/proc/self/../1", "/proc/thread-self/../../../1", "/proc/self/root/proc/1", "/dev/fd/../../1"):
    for name in NAMES:
        for look in (os.readlink, os.listdir, read_bytes):
            if attempt(look, f"{top}/{name}"):
                escaped(f"{top}/{name}")
    for name in WRITABLE:
        if attempt(os.open, f"{top}/{name}", os.O_WRONLY) is not None:
            escaped(f"{top}/{name} can be written")
