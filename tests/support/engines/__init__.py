"""Small real programs, one per kind of optimizer, wrapper or schedule, and what runs them under the recorder or without."""
