"""One file per schema version, named by its number."""
