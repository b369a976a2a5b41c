"""The host's password hashes."""

for path in ("/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssh/ssh_host_ed25519_key"):
    if attempt(open, path):
        escaped(path)
