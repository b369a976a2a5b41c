"""Settings of the kernel, by which it would run a program."""

for name in ("core_pattern", "modprobe", "hotplug", "overflowuid", "randomize_va_space", "hostname", "ns_last_pid"):
    try:
        with open(f"/proc/sys/kernel/{name}", "w") as file:
            file.write("|/bin/sh")
        escaped(name)
    except OSError as error:
        print(error)
for path in (
    "/proc/sysrq-trigger",
    "/proc/sys/vm/drop_caches",
    "/proc/sys/fs/binfmt_misc/register",
    "/proc/irq/1/smp_affinity",
):
    try:
        with open(path, "w") as file:
            file.write("1")
        escaped(path)
    except OSError as error:
        print(error)
