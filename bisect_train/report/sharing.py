"""Files outside the checkouts by which one probe can change another: such probes are not independent.

The recorder tells in an event `outside_files` which paths outside its checkout a process wrote and which it read. Files that
are only read (a data set, weights) do no harm.
"""

from __future__ import annotations

from collections.abc import Iterable

from bisect_train.report.case import Case, Run

EVENT = "outside_files"
MAX_PATHS = 3


def warn_of_shared_files(case: Case) -> tuple[str, ...]:
    """Return a warning if a path that one probe wrote was written or read by another one, else ()."""
    written, touched = _users_of(case.runs, ("written",)), _users_of(case.runs, ("written", "read"))
    shared = sorted(path for path in written if len(touched[path]) > 1)
    if not shared:
        return ()
    shown = ", ".join(shared[:MAX_PATHS])
    more = f" and {len(shared) - MAX_PATHS} more" if len(shared) > MAX_PATHS else ""
    return (
        f"probes share {shown}{more} outside their checkouts: what one writes another reads, so they are not independent; "
        "make it private (`private:` in the recipe for the variable that names its folder)",
    )


def _users_of(runs: Iterable[Run], uses: tuple[str, ...]) -> dict[str, set[str]]:
    """Return the keys of the probes by the path that they used in one of these ways."""
    users: dict[str, set[str]] = {}
    for run in runs:
        events = (event for rank in run.fingerprint.ranks for event in rank.events if event.name == EVENT)
        for path in (str(path) for event in events for use in uses for path in event.data.get(use) or ()):
            users.setdefault(path, set()).add(run.probe.key)
    return users
