"""The NIC in software."""
