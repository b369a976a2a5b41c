"""Child processes, locks, addresses: everything that touches the operating system."""
