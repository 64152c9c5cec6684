"""The git objects of variants as packs: most of them in one pack that all variants of a range share."""

from __future__ import annotations

from bisect_train.changes.history import CommitRange
from bisect_train.changes.packs import (
    MAX_RANGE_BYTES,
    MAX_RANGE_COMMITS,
    ObjectList,
    PackShelf,
    check_complete,
    list_objects,
    list_tree_objects,
    num_bytes_of,
)
from bisect_train.changes.repository import Repository
from bisect_train.changes.submodules import Submodule, SubmoduleFinder
from bisect_train.core.changes import Variant
from bisect_train.core.probe import Pack


class VariantPacks:
    """Makes packs for the workers; remembers them.

    Args:
        repository: the user's.
        commits: the range.
        submodules: of the trees.
    """

    def __init__(self, repository: Repository, commits: CommitRange, submodules: SubmoduleFinder) -> None:
        self._repository = repository
        self._commits = commits
        self._submodules = submodules
        self._shelf = PackShelf(repository.home / "packs" / repository.key)
        self._anchors: tuple[frozenset[str], ObjectList] | None = None

    def packs(self, variant: Variant) -> tuple[Pack, ...]:
        """Return the packs of a variant.

        Raises:
            UnbuildableError: an object is missing.
        """
        git = self._repository.git
        anchors, objects = self._shared()
        self.check_complete(variant.tree)
        packs = [self._shelf.pack(git, objects.present)]
        if variant.commit not in anchors:
            ends = {tree_of(self._repository, commit) for commit in (self._commits.base, self._commits.bad)}
            extra = list_tree_objects(git, variant.tree, without=ends - {variant.tree} - objects.missing)
            if extra.missing:
                check_complete(git, variant.tree)
            packs.append(self._shelf.pack(git, (variant.commit, *extra.present)))
        return (*packs, *map(self._pack_submodule, self._submodules.find(variant.tree)))

    def check_complete(self, tree: str) -> None:
        """Raise UnbuildableError where an object of a tree is missing."""
        if self._repository.is_partial or self._shared()[1].missing:
            check_complete(self._repository.git, tree)

    def _pack_submodule(self, module: Submodule) -> Pack:
        git = self._repository.git.with_objects(module.objects)
        objects = list_tree_objects(git, module.subtree.tree)
        if objects.missing:
            check_complete(git, module.subtree.tree, inside=module.subtree.path)
        return self._shelf.pack(git, objects.present)

    def _shared(self) -> tuple[frozenset[str], ObjectList]:
        """Return the commits whose objects the shared pack has, and these objects."""
        if self._anchors is None:
            self._anchors = self._choose_shared()
        return self._anchors

    def _choose_shared(self) -> tuple[frozenset[str], ObjectList]:
        git = self._repository.git
        ends = tuple(dict.fromkeys((self._commits.base, self._commits.good, self._commits.bad)))
        if len(self._commits.commits) <= MAX_RANGE_COMMITS:
            every = tuple(dict.fromkeys((*ends, *self._commits.commits)))
            objects = list_objects(git, every)
            if num_bytes_of(git, objects.present) <= MAX_RANGE_BYTES:
                return frozenset(every), objects
        return frozenset(ends), list_objects(git, ends)


def tree_of(repository: Repository, commit: str) -> str:
    """Return a commit's tree."""
    # not `rev-parse`: it wants the tree itself, which a partial clone may lack
    return repository.git.text("log", "-1", "--format=%T", commit, "--")
