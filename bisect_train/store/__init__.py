"""Bisections as events in a database: what was asked, what happened, what the probes recorded; the rest is derived."""

from bisect_train.store.contract import LIFECYCLE, Store, StoredBisection, StoredEvent, StoredProbe, Update
from bisect_train.store.home import default_home, open_store
from bisect_train.store.memory import MemoryStore
from bisect_train.store.sql import SqlStore

__all__ = [
    "LIFECYCLE",
    "MemoryStore",
    "SqlStore",
    "Store",
    "StoredBisection",
    "StoredEvent",
    "StoredProbe",
    "Update",
    "default_home",
    "open_store",
]
