"""Measuring a machine: the seconds of each kind of work, as a device profile."""
