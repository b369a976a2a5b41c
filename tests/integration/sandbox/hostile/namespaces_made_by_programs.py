"""New namespaces by programs for it."""

for command in (
    "unshare -Ur id -u",
    "unshare -U id -u",
    "bwrap --unshare-all --ro-bind / / id -u",
    "nsenter -t 1 -a id -u",
):
    output = os.popen(f"{command} 2>&1").read()
    if output.strip().isdigit():
        escaped(command)
