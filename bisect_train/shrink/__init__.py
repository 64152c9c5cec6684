"""The shrink ladder: which rungs there are, and which one is worked on. Pure."""
