"""Code in the kernel, and measurements of others."""

attributes = ctypes.create_string_buffer(128)
for command in range(20):
    if syscall("bpf", command, attributes, 128)[0] >= 0:
        escaped(f"bpf {command}")
if (
    syscall("perf_event_open", attributes, 0, -1, -1, 0)[0] >= 0
    or syscall("perf_event_open", attributes, -1, 0, -1, 0)[0] >= 0
):
    escaped("perf")
if syscall("userfaultfd", 1)[0] >= 0 or syscall("userfaultfd", 0)[0] >= 0:
    escaped("userfaultfd")
