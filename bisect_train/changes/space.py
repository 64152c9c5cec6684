"""All changes between the two ends in one order, and the variant that any set of them gives.

The order is commits first, then config keys: prefix k of the commits has the good config, and beyond the commits the bad end's
tree takes the config keys one by one. Any other set is a `Point` with additions and omissions.
"""

from __future__ import annotations

import shlex

from bisect_train.changes.commit_states import CommitStates
from bisect_train.changes.config import ConfigDiff, diff_configs
from bisect_train.changes.fixup import Fixups, FixupUse
from bisect_train.changes.history import CommitRange, commit_range, single_commit
from bisect_train.changes.merge import ConflictError
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
from bisect_train.changes.plumbing import decode, printable
from bisect_train.changes.priors import Priors, weigh_changes
from bisect_train.changes.repository import Repository
from bisect_train.changes.submodules import Submodule, SubmoduleFinder
from bisect_train.changes.worktree import write_commit
from bisect_train.core.changes import GOOD_END, Change, FilePatch, Point, Variant, make_point
from bisect_train.core.errors import UnbuildableError
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
        InputError: a rule for priors cannot be read.
    """
    asked = question.range
    is_single = asked.goods == (asked.bad,)
    commits = single_commit(asked.bad) if is_single else commit_range(repository, asked)
    configs = None
    if question.good_config and question.bad_config:
        override = question.override if OVERRIDES in question.command else ""
        configs = diff_configs(question.good_config, question.bad_config, override=override)
    space = ChangeSpace(repository, question, commits=commits, configs=configs)
    space.priors = weigh_changes(repository, asked, space.changes, texts=question.priors, unlikely=space.unlikely)
    return space


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
        priors: prior weights of the changes.
        good_is_base: whether prefix 0 is the good end as it was given; else `GOOD_END` is.
        commits: the candidates and their ends.
        fixups: patch files that are laid over the states that take them, as they were named.
    """

    def __init__(self, repository: Repository, question: Question, *, commits: CommitRange, configs: ConfigDiff | None) -> None:
        self.commits = commits
        self.changes: tuple[Change, ...] = commits.changes + (configs.changes if configs else ())
        self.skipped = commits.skipped
        self.unlikely = commits.unlikely
        self.priors = Priors()
        self.good_is_base = commits.good_is_base
        self._repository = repository
        self._question = question
        self._configs = configs
        self._states = CommitStates(commits, repository.git)
        self._submodules = SubmoduleFinder(repository)
        self._shelf = PackShelf(repository.home / "packs" / repository.key)
        self._anchors: tuple[frozenset[str], ObjectList] | None = None
        self._variants: dict[Point, Variant] = {}
        self.fixups = tuple(fixup.path for fixup in question.fixups)
        self._fixups = Fixups(repository.git, question.fixups, folder=repository.home / "fixups")

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
        commands = () if point == GOOD_END else self._states.commands_for(self._commit_part(point))
        try:
            commit, tree = self._base_of(point)
        except UnbuildableError:  # the commands lead to the conflict
            return commands
        return (*(commands or self._checkout(commit)), *self._fixups.commands(tree))

    def survey_fixups(self) -> tuple[FixupUse, ...]:
        """Return how many commits of the range, its ends included, take each fixup; of a long range, of a sample of it."""
        ends = () if self.good_is_base else (self.commits.good,)
        return self._fixups.survey(tuple(dict.fromkeys((*ends, self.commits.base, *self.commits.commits, self.commits.bad))))

    def fixups_at(self, point: Point) -> tuple[bool, ...]:
        """Return for each fixup whether the state of a set of changes has it.

        Raises:
            UnbuildableError: the set cannot be built.
        """
        return self._fixups.fix(self._base_of(self._canonical(point))[1]).applied

    def files_of(self, idx: int) -> tuple[str, ...]:
        """Return the files that a commit change touches; () for other kinds of change.

        On a main line a merge touches what it brought in, elsewhere what its author changed beyond merging.
        """
        if idx >= len(self.commits.commits):
            return ()
        try:
            before, after = self._states.delta_of(idx)
        except ConflictError as error:
            return error.files
        except UnbuildableError:
            return ()
        listed = self._repository.git.attempt("diff-tree", "-r", "--name-only", "-z", before, after)
        return tuple(path for path in decode(listed.stdout).split("\0") if path)

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

    def _base_of(self, point: Point) -> tuple[str, str]:
        """Return the commit and the tree of a canonical set, before any fixup."""
        if point == GOOD_END:
            return self.commits.good, self._states.tree_of(self.commits.good)
        return self._states.state_of(self._commit_part(point))

    def _build(self, point: Point) -> Variant:
        commit, tree = self._base_of(point)
        chosen = self._config_part(point)
        if self._repository.is_partial:
            self._check_complete(tree)
        commit, tree = self._fix(commit, tree)
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

    def _fix(self, commit: str, tree: str) -> tuple[str, str]:
        """Return commit and tree with the fixups that apply; a synthetic commit on top of the given one, if any does."""
        fixed = self._fixups.fix(tree)
        if fixed.tree == tree:
            return commit, tree
        message = f"bisect-train: {commit[:12]} with {', '.join(map(printable, self._fixups.names(fixed.applied)))}"
        return write_commit(self._repository.git, fixed.tree, message=message, parents=(commit,)), fixed.tree

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
