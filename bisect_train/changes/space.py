"""All changes between the two ends in one order, and the variant that any set of them gives.

The order is commits first, then config keys: prefix k of the commits has the good config, and beyond the commits the bad end's
tree takes the config keys one by one. Any other set is a `Point` with additions and omissions.
"""

from __future__ import annotations

import shlex

from bisect_train.changes.commit_states import CommitStates
from bisect_train.changes.config import ConfigDiff, diff_configs
from bisect_train.changes.history import CommitRange, commit_range, single_commit
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
from bisect_train.changes.plumbing import decode
from bisect_train.changes.repository import Repository
from bisect_train.changes.submodules import Submodule, SubmoduleFinder
from bisect_train.core.changes import GOOD_END, Change, FilePatch, Point, Variant, make_point
from bisect_train.core.probe import Pack
from bisect_train.core.question import Question

OVERRIDES = "{overrides}"


def build_space(repository: Repository, question: Question) -> ChangeSpace:
    """Return the changes that a question is about.

    Args:
        repository: the user's, where the question's commits are.
        question: `range.goods == (bad,)` stands for one commit without commit changes.
    Raises:
        RevisionError: the commits are no range.
        RecipeError: a config file cannot be used.
    """
    asked = question.range
    is_single = asked.goods == (asked.bad,)
    commits = single_commit(asked.bad) if is_single else commit_range(repository, asked)
    configs = None
    if question.good_config and question.bad_config:
        override = question.override if OVERRIDES in question.command else ""
        configs = diff_configs(question.good_config, question.bad_config, override=override)
    return ChangeSpace(repository, question, commits=commits, configs=configs)


class ChangeSpace:
    """The changes of a question, and what sets of them give. Not thread-safe; remembers trees and packs.

    Args:
        repository: the user's.
        question: what was asked.
        commits: its candidates.
        configs: how the two ends' configs differ, or None when the config travels with the tree.

    Attributes:
        changes: commits, then config keys; each after what it needs.
        skipped: prefix numbers that must not be run.
        unlikely: indices of changes outside what was asked about (`--path`); they are candidates of last resort.
        good_is_base: whether prefix 0 is the good end as it was given; else `GOOD_END` is.
        commits: the candidates and their ends.
    """

    def __init__(self, repository: Repository, question: Question, *, commits: CommitRange, configs: ConfigDiff | None) -> None:
        self.commits = commits
        self.changes: tuple[Change, ...] = commits.changes + (configs.changes if configs else ())
        self.skipped = commits.skipped
        self.unlikely = commits.unlikely
        self.good_is_base = commits.good_is_base
        self._repository = repository
        self._question = question
        self._configs = configs
        self._states = CommitStates(commits, repository.git)
        self._submodules = SubmoduleFinder(repository)
        self._shelf = PackShelf(repository.home / "packs" / repository.key)
        self._anchors: tuple[frozenset[str], ObjectList] | None = None
        self._variants: dict[Point, Variant] = {}

    @property
    def repo_key(self) -> str:
        """Stable short name of the repository, for the workers' mirrors."""
        return self._repository.key

    def variant(self, point: Point) -> Variant:
        """Return the variant of a set of changes; equal sets give equal variants.

        Raises:
            ValueError: the point names a change that does not exist.
            UnbuildableError: the set cannot be built: a conflict, a missing object or submodule.
        """
        point = self._canonical(point)
        if point not in self._variants:
            self._variants[point] = self._build(point)
        return self._variants[point]

    def packs(self, variant: Variant) -> tuple[Pack, ...]:
        """Return the git objects that a worker needs for a variant; most of them in one pack that all variants share.

        Raises:
            UnbuildableError: an object is missing.
        """
        git = self._repository.git
        anchors, objects = self._shared()
        self._check_complete(variant.tree)
        packs = [self._shelf.pack(git, objects.present)]
        if variant.commit not in anchors:
            ends = {self._states.tree_of(commit) for commit in (self.commits.base, self.commits.bad)}
            extra = list_tree_objects(git, variant.tree, without=ends - {variant.tree} - objects.missing)
            if extra.missing:
                check_complete(git, variant.tree)
            packs.append(self._shelf.pack(git, (variant.commit, *extra.present)))
        return (*packs, *map(self._pack_submodule, self._submodules.find(variant.tree)))

    def _pack_submodule(self, module: Submodule) -> Pack:
        git = self._repository.git.with_objects(module.objects)
        objects = list_tree_objects(git, module.subtree.tree)
        if objects.missing:
            check_complete(git, module.subtree.tree, inside=module.subtree.path)
        return self._shelf.pack(git, objects.present)

    def reproduce(self, point: Point) -> tuple[str, ...]:
        """Return the git commands by which a person gets a set's tree; what the configs add is not in them."""
        point = self._canonical(point)
        if point == GOOD_END:
            return self._checkout(self.commits.good)
        part = self._commit_part(point)
        commands = self._states.commands_for(part)
        return commands or self._checkout(self._states.state_of(part)[0])

    def files_of(self, idx: int) -> tuple[str, ...]:
        """Return the files that a commit change touches, against its first parent; () for other kinds of change."""
        if idx >= len(self.commits.commits):
            return ()
        commit = self.commits.commits[idx]
        listed = self._repository.git.attempt(
            "diff-tree", "-r", "-m", "--root", "--first-parent", "--no-commit-id", "--name-only", "-z", commit
        )
        return tuple(dict.fromkeys(path for path in decode(listed.stdout).split("\0") if path))

    def _checkout(self, commit: str) -> tuple[str, ...]:
        if self._repository.has_own(commit):
            return (f"git checkout --detach {commit}",)
        # a snapshot or a synthetic commit lies in our mirror only
        return (f"git fetch {shlex.quote(str(self._repository.mirror))} {commit}", "git checkout --detach FETCH_HEAD")

    def _canonical(self, point: Point) -> Point:
        if point == GOOD_END:
            return make_point(0) if self.good_is_base else GOOD_END
        if not 0 <= point.prefix <= len(self.changes):
            raise ValueError(f"the prefix must be in 0..{len(self.changes)}, got {point.prefix}")
        outside = [idx for idx in (*point.plus, *point.minus) if not 0 <= idx < len(self.changes)]
        if outside:
            raise ValueError(f"changes are numbered 0..{len(self.changes) - 1}, got {outside[0]}")
        minus = tuple(set(point.minus) - set(point.plus))
        return make_point(point.prefix, plus=point.plus, minus=minus)

    def _commit_part(self, point: Point) -> Point:
        """Return the canonical set of the commits that a set holds."""
        num = len(self.commits.commits)
        plus = tuple(idx for idx in point.plus if idx < num)
        minus = tuple(idx for idx in point.minus if idx < num)
        return make_point(min(point.prefix, num), plus=plus, minus=minus)

    def _config_part(self, point: Point) -> tuple[Change, ...]:
        """Return the config changes that a set holds."""
        num = len(self.commits.commits)
        chosen = set(range(num, point.prefix)) - set(point.minus)
        chosen.update(idx for idx in point.plus if idx >= num)
        return tuple(self.changes[idx] for idx in sorted(chosen))

    def _build(self, point: Point) -> Variant:
        if point == GOOD_END:
            commit, tree = self.commits.good, self._states.tree_of(self.commits.good)
        else:
            commit, tree = self._states.state_of(self._commit_part(point))
        chosen = self._config_part(point)
        if self._repository.is_partial:
            self._check_complete(tree)
        command, config = self._apply_config(chosen)
        return Variant(
            tree=tree,
            commit=commit,
            command=command,
            config=config,
            config_path="" if config else self._question.config_path,
            subtrees=tuple(module.subtree for module in self._submodules.find(tree)),
            env=self._question.env,
            data=self._question.data,
        )

    def _apply_config(self, chosen: tuple[Change, ...]) -> tuple[tuple[str, ...], FilePatch | None]:
        """Return the command and the config file; keys given on the command line leave the file as the good end has it."""
        diff = self._configs
        arguments = diff.overrides(chosen) if diff else ()
        command: list[str] = []
        for part in self._question.command:
            command += arguments if part == OVERRIDES else (part,)
        if diff is None:
            return tuple(command), None
        return tuple(command), diff.render(() if diff.override else chosen)

    def _check_complete(self, tree: str) -> None:
        if self._repository.is_partial or self._shared()[1].missing:
            check_complete(self._repository.git, tree)

    def _shared(self) -> tuple[frozenset[str], ObjectList]:
        """Return the commits whose objects the shared pack has, and these objects."""
        if self._anchors is None:
            self._anchors = self._choose_shared()
        return self._anchors

    def _choose_shared(self) -> tuple[frozenset[str], ObjectList]:
        git = self._repository.git
        ends = tuple(dict.fromkeys((self.commits.base, self.commits.good, self.commits.bad)))
        if len(self.commits.commits) <= MAX_RANGE_COMMITS:
            every = tuple(dict.fromkeys((*ends, *self.commits.commits)))
            objects = list_objects(git, every)
            if num_bytes_of(git, objects.present) <= MAX_RANGE_BYTES:
                return frozenset(every), objects
        return frozenset(ends), list_objects(git, ends)
