"""What differs between two ends: commits, config keys and data, and the variants that sets of them give."""
