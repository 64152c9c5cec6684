"""Metrics from what a program writes, read after it has ended: event files, tables, JSON, offline runs of trackers.

Small readers of our own, of the parts of the formats that hold numbers: the libraries that write them are the program's,
not ours, in whatever version a commit needs, and take seconds to import. A file that is cut off anywhere reads up to its last
whole record. `reading` is where others begin.
"""
