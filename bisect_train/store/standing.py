"""Where a bisection stands by its store: one that was killed is told from one that has just ended."""

from __future__ import annotations

from bisect_train.store.contract import Store, StoredBisection

RUNNING, STOPPED = "running", "stopped"


def standing_of(stored: StoredBisection, store: Store) -> str:
    """Return the stored status; `stopped` where it says running and no coordinator is left.

    A coordinator that ends says so before it lets go of its lock, so what was read while it still ran is read again.
    """
    if stored.status != RUNNING or store.is_running(stored.id):
        return stored.status
    now = store.load(stored.id).status
    return STOPPED if now == RUNNING else now
