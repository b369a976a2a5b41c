"""Everything deleted that can be."""

os.system("rm -rf --no-preserve-root /usr/share/doc /usr/bin /etc /tmp/* /home /root /dev 2>/dev/null")
if not os.path.isdir("/usr/bin") or not os.path.exists("/etc/passwd") or not os.path.exists("/dev/null"):
    escaped("files of the host are deleted")
