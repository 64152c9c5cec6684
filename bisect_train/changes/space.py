"""All changes between the two ends in one order, and the variant that any set of them gives.

The order is commits first, then what is free of them: packages, data, environment variables, launch settings, config keys.
Prefix k of the commits has everything else as the good end does; beyond the commits the bad end's tree takes the others one by
one. Any other set is a `Point` with additions and omissions. What is not searched is as the bad end has it, everywhere.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise, takewhile

from bisect_train.changes.axes import Axis, Draft, TreeConfigAxis
from bisect_train.changes.axis_list import free_axes
from bisect_train.changes.choices import Choices, Membership, with_choice
from bisect_train.changes.commit_states import CommitStates
from bisect_train.changes.file_changes import Steps, read_file_changes
from bisect_train.changes.fixup import Fixups, FixupUse
from bisect_train.changes.history import CommitRange, commit_range, single_commit
from bisect_train.changes.hunk_states import HunkStates
from bisect_train.changes.idle_keys import config_path_of
from bisect_train.changes.merge import ConflictError
from bisect_train.changes.package_axis import PackageAxis, ReleaseAxis, TreePackages
from bisect_train.changes.plumbing import decode, printable
from bisect_train.changes.priors import Priors, weigh_changes
from bisect_train.changes.repository import Repository
from bisect_train.changes.submodule_axis import SubmoduleAxis, bump_in
from bisect_train.changes.submodules import Bump, SubmoduleFinder
from bisect_train.changes.tree_files import write_files
from bisect_train.changes.variant_packs import VariantPacks, tree_of
from bisect_train.changes.worktree import write_commit
from bisect_train.core.changes import GOOD_END, Change, ChangeKind, Point, Variant, make_point
from bisect_train.core.errors import UnbuildableError
from bisect_train.core.probe import Pack
from bisect_train.core.question import ConfigHold, Question
from bisect_train.core.when import Choice

REQUIREMENT_FILES = (
    *(f":(glob){place}" for place in ("requirements*.txt", "requirements/*.txt", "*.lock", "pylock*.toml")),
    *(f":(glob){place}" for place in ("environment*.yml", "environment*.yaml", "conda-lock.yml")),
)
"""Where a repository names its packages; pyproject.toml changes for other reasons too."""


def build_space(repository: Repository, question: Question) -> ChangeSpace:
    """Return the changes that a question is about.

    Args:
        repository: the user's, where the question's commits are.
        question: `range.goods == (bad,)` stands for one commit without commit changes.
    Raises:
        RevisionError: the commits are no range.
        RecipeError: a config file or a list of packages cannot be used.
        InputError: a rule for priors, or a name to exclude, cannot be used.
    """
    asked = question.range
    is_single = asked.goods == (asked.bad,) or (question.only and ChangeKind.COMMIT.value not in question.only)
    commits = single_commit(asked.bad) if is_single else commit_range(repository, asked)
    axes = free_axes(repository, question)
    space = ChangeSpace(repository, question, commits=commits, axes=axes)
    space.priors = weigh_changes(repository, asked, space.changes, texts=question.priors, unlikely=space.unlikely)
    return space


class ChangeSpace:
    """The changes of a question, and what sets of them give. Not thread-safe; remembers trees and packs.

    Args:
        repository: the user's.
        question: what was asked.
        commits: its candidates.
        axes: everything else that differs between the ends.

    Attributes:
        changes: commits (or the pieces of one), then the free ones; each after what it needs.
        num_ordered: changes of the tree that need those before them; the others can be applied in any order.
        held: changes that are not searched; everything has them.
        skipped: prefix numbers that must not be run.
        unlikely: indices of changes outside what was asked about (`--path`); they are candidates of last resort.
        priors: prior weights of the changes.
        good_is_base: whether prefix 0 is the good end as it was given; else `GOOD_END` is.
        commits: the candidates and their ends.
        fixups: patch files that are laid over the states that take them, as they were named.
        submodule: the axis of a submodule's commits where these are searched, else None.
    """

    def __init__(self, repository: Repository, question: Question, *, commits: CommitRange, axes: tuple[Axis, ...]) -> None:
        self.commits = commits
        self._states = _states_of(repository, question, commits)
        is_split = isinstance(self._states, HunkStates)
        tree_changes = self._states.changes if isinstance(self._states, HunkStates) else commits.changes
        free = [change for axis in axes for change in axis.changes]
        searched = [change for change in free if _is_searched(change, question)]
        left_out = {*searched, *(change for change in free if change.key in question.left_out)}
        self.held = frozenset(change for change in free if change not in left_out)
        self.changes: tuple[Change, ...] = (*tree_changes, *searched)
        ordered = 0 if is_split else len(tree_changes)
        self.num_ordered = ordered or sum(len(axis.changes) for axis in axes if axis.is_ordered)
        self._num_tree = len(tree_changes)
        self._axes = axes
        self.skipped = commits.skipped
        self.unlikely = commits.unlikely
        self.priors = Priors()
        self.good_is_base = commits.good_is_base
        self._repository = repository
        self._question = question
        self.submodule = next((axis for axis in axes if isinstance(axis, SubmoduleAxis)), None)
        self._submodules = SubmoduleFinder(repository, clones=question.package_repos)
        environment = question.settings.environment
        self._tree_packages = TreePackages(repository.git, environment.files, environment.installed)
        self._packs = VariantPacks(repository, commits, self._submodules)
        self._variants: dict[Point, Variant] = {}
        self.fixups = tuple(fixup.path for fixup in question.fixups)
        self._choices = Choices(repository.git, question.whens)
        self._membership = Membership(
            repository.git, commits, split=question.inside.commit if is_split else "", num_pieces=len(tree_changes)
        )
        self._fixups = Fixups(repository.git, question.fixups, folder=repository.home / "fixups")

    @property
    def repo_key(self) -> str:
        """Stable short name of the repository, for the workers' mirrors."""
        return self._repository.key

    @property
    def is_inside_package(self) -> bool:
        """Whether the releases, or the commits, of one package are searched."""
        return bool(self._question.inside.package)

    def versions_of(self, idx: int) -> tuple[str, str]:
        """Return the versions before and after a package change, "" where an end has no exact one."""
        change = self.changes[idx]
        axis = next(axis for axis in self._axes if change in axis.changes)
        return axis.versions_of(change) if isinstance(axis, (PackageAxis, ReleaseAxis)) else ("", "")

    def bump_of(self, idx: int) -> Bump | None:
        """Return the submodule whose commit is all that a change of the tree, or of a submodule's tree, moves; or None."""
        if self.submodule is not None and self.changes[idx] in self.submodule.changes:
            return self.submodule.bump_of(self.changes[idx])
        if idx >= self._num_tree:
            return None
        return bump_in(self._states, idx, self._repository.git, ends=(self.commits.base, self.commits.bad))

    def source_of(self, bump: Bump, *, commit: str) -> Repository:
        """Return the repository of a submodule that a commit of the tree has.

        Raises:
            UnbuildableError: none that is at hand has both of its commits.
            InputError: the clone that was named for it cannot be opened.
        """
        return self._submodules.source_of(tree_of(self._repository, commit), bump)

    def commit_through(self, idx: int) -> str:
        """Return the commit that holds a change of the tree, or of a submodule, and all before it, without any fixup.

        Raises:
            UnbuildableError: the set cannot be built.
        """
        point = self._canonical(make_point(idx + 1))
        commit, tree = self._base_of(point)
        if self.submodule is None:
            return commit
        chosen = self._free_part(point)
        draft = self.submodule.apply(Draft(()), [change for change in self.submodule.changes if change in chosen])
        return self._write(commit, tree, draft)[0]

    def travelling_config(self) -> str:
        """Return the config file that each commit has of its own and that differs between the ends; "" without one."""
        if self._question.hold is not ConfigHold.TRAVEL or not self.commits.commits:
            return ""
        git, commits = self._repository.git, self.commits
        path = config_path_of(git, commits.bad, self._question.command, self._question.config_path)
        is_changed = path and git.attempt("diff", "--quiet", commits.base, commits.bad, "--", path).returncode == 1
        return path if is_changed else ""

    def ignored_requirements(self) -> tuple[str, ...]:
        """Return requirement and lock files that differ between the ends' commits and that no probe's environment follows."""
        if not self.commits.commits or self._question.settings.environment.files:
            return ()
        git, commits = self._repository.git, self.commits
        listed = git.attempt("diff", "--name-only", "-z", commits.base, commits.bad, "--", *REQUIREMENT_FILES)
        return tuple(path for path in decode(listed.stdout).split("\0") if path)

    def patch_of(self, indices: Sequence[int]) -> str:
        """Return the patch onto the commit's parent that holds some pieces of a commit; "" where none is split."""
        if self.submodule is not None:
            return self.submodule.patch_of([self.changes[idx] for idx in indices])
        return self._states.patch_of(indices) if isinstance(self._states, HunkStates) else ""

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
        """Return the git objects that a worker needs for a variant.

        Raises:
            UnbuildableError: an object is missing.
        """
        return self._packs.packs(variant)

    def reproduce(self, point: Point) -> tuple[str, ...]:
        """Return the git commands by which a person gets a set's tree; generated files outside of it are not in them."""
        point = self._canonical(point)
        if self.submodule is not None:
            return self._commands_around(self.submodule, point)
        if any(isinstance(axis, TreeConfigAxis) for axis in self._axes):
            try:
                return self._checkout(self.variant(point).commit)
            except UnbuildableError:
                pass  # the commands lead to the conflict
        commands = () if point == GOOD_END else self._states.commands_for(self._tree_part(point))
        try:
            commit, tree = self._base_of(point)
        except UnbuildableError:  # the commands lead to the conflict
            return commands
        return (*(commands or self._checkout(commit)), *self._fixups.commands(tree), *self._update_submodules(tree))

    def _commands_around(self, axis: SubmoduleAxis, point: Point) -> tuple[str, ...]:
        """Return the commands for a state of a submodule: those for the tree around it, then those in it."""
        chosen = self._free_part(point)
        draft = replace(self._draft(chosen, ()), gitlinks=())
        commit, tree = self._write(*self._fix(*self._base_of(point)), draft)
        inner = axis.commands_for([change for change in axis.changes if change in chosen])
        return (*self._checkout(commit), *self._update_submodules(tree), *inner)

    def _update_submodules(self, tree: str) -> tuple[str, ...]:
        return ("git submodule update --init --recursive",) if self._submodules.find(tree) else ()

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
        if self.submodule is not None:
            return self.submodule.files_of(self.changes[idx])
        if idx >= self._num_tree:
            return ()
        if isinstance(self._states, HunkStates):
            return (self._states.pieces[idx].path,)
        try:
            before, after = self._states.delta_of(idx)
        except ConflictError as error:
            return error.files
        except UnbuildableError:
            return ()
        listed = self._repository.git.attempt("diff-tree", "-r", "--name-only", "-z", before, after)
        return tuple(path for path in decode(listed.stdout).split("\0") if path)

    @property
    def num_main_line(self) -> int:
        """How many changes, from the first, are commits of which each version is the one before it plus that commit."""
        commits = self.commits
        is_plain = isinstance(self._states, CommitStates) and not self.fixups and self.submodule is None
        if not is_plain or self._num_tree != len(commits.commits):
            return 0
        versions = (commits.base, *commits.commits)
        line = zip(commits.heads, commits.parents, versions, versions[1:], strict=False)
        return sum(1 for _ in takewhile(lambda at: at[0] == (at[3],) and at[1][:1] == (at[2],), line))

    def file_changes(self, first: int, last: int) -> Steps:
        """Return what the changes first..last - 1 of the main line do to which files; None where it cannot be known."""
        versions = (self.commits.base, *self.commits.commits)[first : last + 1]
        steps = read_file_changes(self._repository.git, list(pairwise(versions)))
        if not self._choices:
            return steps
        self._choices.load(versions)
        chosen = [self._choice(make_point(first + idx), commit) for idx, commit in enumerate(versions)]
        # a step from one command to another is one that the program reads
        return [step if pair[0] == pair[1] else None for step, pair in zip(steps, pairwise(chosen), strict=True)]

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

    def _tree_part(self, point: Point) -> Point:
        """Return the canonical set of the commits, or pieces of one, that a set holds."""
        num = self._num_tree
        plus = tuple(idx for idx in point.plus if idx < num)
        minus = tuple(idx for idx in point.minus if idx < num)
        return make_point(min(point.prefix, num), plus=plus, minus=minus)

    def _free_part(self, point: Point) -> frozenset[Change]:
        """Return the free changes that a set holds, those that everything has among them."""
        chosen = set(range(self._num_tree, point.prefix)) - set(point.minus)
        chosen.update(idx for idx in point.plus if idx >= self._num_tree)
        return self.held.union(self.changes[idx] for idx in chosen)

    def _base_of(self, point: Point) -> tuple[str, str]:
        """Return the commit and the tree of a canonical set, before any fixup."""
        if point == GOOD_END:
            return self.commits.good, tree_of(self._repository, self.commits.good)
        return self._states.state_of(self._tree_part(point))

    def _build(self, point: Point) -> Variant:
        commit, tree = self._base_of(point)
        chosen = self.held if point == GOOD_END else self._free_part(point)
        if self._repository.is_partial:
            self._packs.check_complete(tree)
        draft = self._draft(chosen, self._tree_packages.packages_of(tree))
        commit, tree = self._write(*self._fix(commit, tree), draft)
        choice = self._choice(point, tree)
        draft = with_choice(draft, choice, self._question)
        return Variant(
            tree=tree,
            commit=commit,
            command=draft.full_command,
            config=draft.config,
            config_path="" if draft.config else self._question.config_path,
            subtrees=tuple(module.subtree for module in self._submodules.find(tree)),
            env=draft.env,
            data=draft.data_digest(self._question.data),
            packages=draft.packages,
            links=draft.links,
            ranks=draft.ranks,
            python=draft.python,
            interpreter=draft.interpreter,
            launcher=draft.launcher,
            patterns=choice.patterns,
        )

    def _choice(self, point: Point, tree: str) -> Choice:
        """Return what the recipe says for the state of a canonical set."""
        part = point if point == GOOD_END else self._tree_part(point)
        return self._choices.at(tree, partial(self._membership.has, part))

    def _draft(self, chosen: Iterable[Change], packages: tuple[str, ...]) -> Draft:
        draft = Draft(self._question.command, env=self._question.env, packages=packages)
        picked = frozenset(chosen)
        for axis in self._axes:
            draft = axis.apply(draft, [change for change in axis.changes if change in picked])
        return draft

    def _write(self, commit: str, tree: str, draft: Draft) -> tuple[str, str]:
        """Return commit and tree with a draft's files and submodules; a synthetic commit on top, if they change anything."""
        written = tree
        for path, module_commit in draft.gitlinks:
            written = self._submodules.record(written, path, module_commit)
        if draft.files:
            written = write_files(self._repository.git, written, dict(draft.files))
        if written == tree:
            return commit, tree
        paths = ", ".join(printable(path) for path, _ in (*draft.gitlinks, *draft.files))
        message = f"bisect-train: {commit[:12]} with another {paths}"
        return write_commit(self._repository.git, written, message=message, parents=(commit,)), written

    def _fix(self, commit: str, tree: str) -> tuple[str, str]:
        """Return commit and tree with the fixups that apply; a synthetic commit on top of the given one, if any does."""
        fixed = self._fixups.fix(tree)
        if fixed.tree == tree:
            return commit, tree
        message = f"bisect-train: {commit[:12]} with {', '.join(map(printable, self._fixups.names(fixed.applied)))}"
        return write_commit(self._repository.git, fixed.tree, message=message, parents=(commit,)), fixed.tree


def _states_of(repository: Repository, question: Question, commits: CommitRange) -> CommitStates | HunkStates:
    if question.inside.commit and not question.inside.submodule:
        return HunkStates(repository.git, parent=commits.base, commit=question.inside.commit)
    return CommitStates(commits, repository.git)


def _is_searched(change: Change, question: Question) -> bool:
    if question.only and change.kind.value not in question.only:
        return False
    return not {change.id, change.key} & {*question.exclude, *question.left_out}
