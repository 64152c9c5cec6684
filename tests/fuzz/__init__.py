"""Feeds hostile input to every reader of text that others wrote; see docs/fuzzing.md.

    python -m tests.fuzz --seed 9 --inputs 1000000       all targets, each its share
    python -m tests.fuzz --target recipe --inputs 5000   one of them
    python -m tests.fuzz --replay DIR/recipe-1.json      one failing input again

An input depends on seed, target and its number only. What counts as a failure: an exception that the reader does not promise,
an error without words, more than 2 s of processor time, more memory than allowed, a process that dies.
"""
