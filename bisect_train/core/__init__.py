"""The vocabulary that every layer shares. Pure: no I/O, no clock, no global random state."""
