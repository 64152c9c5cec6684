"""Everything that is kept on this machine, item by item, and which stored bisections need it. Nothing is made or changed.

Of the cluster's other machines nothing is said: each keeps its own folder within its own limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bisect_train.changes.repository import common_dir_of
from bisect_train.core.errors import BisectTrainError, InputError
from bisect_train.store.contract import Store, StoredBisection
from bisect_train.store.home import default_home, open_store
from bisect_train.store.upkeep import database_bytes, has_database
from bisect_train_workers.node import NodeHome, find_node_home
from bisect_train_workers.upkeep import KEPT, RUNNING, CacheItem, folder_bytes, is_locked, list_node

HOME_MIRROR, PACKS, CLONE, RAY = "mirror", "packs", "package clone", "Ray's files"
OTHER = "other folder"
_KNOWN = frozenset(["mirrors", "packs", "package-repos", "ray", "node", "locks"])


@dataclass(frozen=True, slots=True)
class Stock:
    """What is kept.

    Attributes:
        home: the folder for state; it may not be there.
        node: the folder for probes on this machine.
        items: folders, each with who needs it.
        bisections: that are stored, the newest first.
        last_s: when something happened last in each, seconds since the epoch, by id.
        running: ids of those that a coordinator runs.
        database_bytes: of the database.
        trouble: why the database cannot be read, or None.
    """

    home: Path
    node: NodeHome
    items: tuple[CacheItem, ...] = ()
    bisections: tuple[StoredBisection, ...] = ()
    last_s: dict[str, float] = field(default_factory=dict)
    running: frozenset[str] = frozenset()
    database_bytes: int = 0
    trouble: BisectTrainError | None = None

    @property
    def total_bytes(self) -> int:
        """Bytes of the database and all items."""
        return self.database_bytes + sum(item.num_bytes for item in self.items)


def take_stock(home: Path | None = None) -> Stock:
    """Return what is kept; a database that cannot be read is `trouble`, and then everything beside it counts as needed."""
    home = home or default_home()
    node = find_node_home(str(home / "node"))
    found, trouble = Stock(home, node), None
    if has_database(home):
        try:
            found = _read_database(home, node)
        except BisectTrainError as error:
            trouble = error
    items = (*_list_home(found, is_known=trouble is None), *list_node(node))
    return Stock(
        home,
        node,
        items,
        found.bisections,
        found.last_s,
        found.running,
        database_bytes(home),
        trouble,
    )


def _read_database(home: Path, node: NodeHome) -> Stock:
    store = open_store(home)
    try:
        every = store.list()
        running = frozenset(item.id for item in every if store.is_running(item.id))
        last_s = {item.id: _last_event_s(store, item) for item in every}
    finally:
        store.close()
    return Stock(home, node, bisections=every, last_s=last_s, running=running)


def _last_event_s(store: Store, stored: StoredBisection) -> float:
    return max((event.time_s for event in store.events(stored.id)), default=stored.created_s)


# ---- the folder for state -----------------------------------------------------------------------------------------


def _list_home(stock: Stock, *, is_known: bool) -> Iterable[CacheItem]:
    owners = owners_of(stock.bisections)
    for mirror in sorted((stock.home / "mirrors").glob("*.git")):
        borrowed = borrowed_by(mirror)
        held = needs_of(borrowed, owners) if is_known else "perhaps a bisection"
        held = held if borrowed is not None else "not of the cache"  # ours always borrow from a repository
        yield CacheItem(HOME_MIRROR, mirror, folder_bytes(mirror), _newest_s(mirror / "objects"), held)
    for packs in _folders(stock.home / "packs"):
        held = "" if is_known and not stock.running else "a running bisection"
        yield CacheItem(PACKS, packs, folder_bytes(packs), _newest_s(packs), held)
    for clone in sorted((stock.home / "package-repos").glob("*.git")):
        held = needs_of(clone, owners) if is_known else "perhaps a bisection"
        yield CacheItem(CLONE, clone, folder_bytes(clone), _newest_s(clone), held)
    for session in _folders(stock.home / "ray"):
        if is_locked(session / "lock"):
            yield CacheItem(RAY, session, folder_bytes(session), _newest_s(session), "a running bisection")
    for folder in _folders(stock.home):
        if folder.name not in _KNOWN and folder != stock.node.path:
            yield CacheItem(OTHER, folder, folder_bytes(folder), _newest_s(folder), "not of the cache")


def owners_of(every: Sequence[StoredBisection]) -> dict[Path, int]:
    """Return the repositories that stored bisections are about, each with how many are; clones of packages count too."""
    counts: dict[Path, int] = {}
    for stored in every:
        question = stored.question
        places = [question.get("repo"), (question.get("inside") or {}).get("package_repo")]
        places += [pair[1] for pair in question.get("package_repos") or ()]
        for place in {folder for text in places if text for folder in _places_of(Path(text))}:
            counts[place] = counts.get(place, 0) + 1
    return counts


def _places_of(repo: Path) -> set[Path]:
    """Return a repository's folder, and its git directory, which lies elsewhere for a worktree."""
    try:
        return {repo.resolve(), common_dir_of(repo).resolve()}
    except (InputError, OSError):  # it is gone
        return {repo.resolve()}


def needs_of(folder: Path | None, owners: dict[Path, int]) -> str:
    """Return which bisections need a repository's folder, for a person; "" for none. An unknown folder is needed by any."""
    if folder is None:
        return "perhaps a bisection" if owners else ""
    num = max((count for owner, count in owners.items() if folder.resolve().is_relative_to(owner)), default=0)
    return f"{num} bisection{'s' if num != 1 else ''}" if num else ""


def borrowed_by(mirror: Path) -> Path | None:
    """Return the git directory whose objects a mirror borrows, None where that cannot be told."""
    try:
        first = (mirror / "objects/info/alternates").read_text(encoding="utf-8", errors="surrogateescape").splitlines()[0]
    except (OSError, IndexError):
        return None
    return Path(first).parent if first.startswith("/") else None


def _folders(parent: Path) -> list[Path]:
    try:
        return sorted(path for path in parent.iterdir() if path.is_dir() and not path.is_symlink())
    except OSError:
        return []


def _newest_s(folder: Path) -> float:
    """Return the newest change of a folder and what lies directly in it, seconds since the epoch."""
    try:
        return max(path.lstat().st_mtime for path in (folder, *folder.iterdir()))
    except OSError:
        return 0.0


ORDER = (HOME_MIRROR, PACKS, CLONE, "node mirror", "checkout", "overlay", "environment", KEPT, RUNNING, RAY, OTHER)
"""Kinds in the order of tables."""
