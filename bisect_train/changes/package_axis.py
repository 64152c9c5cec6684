"""Packages as axes: one change a package, the releases of one package, or the commits of one package's repository.

Of the packages of an end only those that differ are laid over the environment; where a commit's own requirement files differ
from what is installed, theirs are laid too (`TreePackages`), and the axes win over them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from bisect_train.changes.axes import Draft
from bisect_train.changes.commit_states import CommitStates
from bisect_train.changes.history import CommitRange
from bisect_train.changes.packages import Pin, diff_packages, read_packages_text
from bisect_train.changes.packages.repo import requirement_of_wheel, wheel_of_commit
from bisect_train.changes.plumbing import Git
from bisect_train.changes.repository import Repository
from bisect_train.changes.tree_files import read_file
from bisect_train.core.changes import Change, ChangeKind, make_point
from bisect_train.core.errors import InputError, UnbuildableError


class PackageAxis:
    """Packages whose versions differ, each a change.

    Args:
        good, bad: requirements of the ends.
        is_whole: whether all packages are laid, those that do not differ too (an environment of its own).
    """

    is_ordered = False

    def __init__(self, good: Sequence[str], bad: Sequence[str], *, is_whole: bool = False) -> None:
        left, right = pins_of(good), pins_of(bad)
        self._diff = diff_packages(left, right)
        self.changes = self._diff.changes
        differing = {change.id for change in self.changes}
        self._common = tuple(pin.requirement for name, pin in left.items() if is_whole and name not in differing)

    def versions_of(self, change: Change) -> tuple[str, str]:
        """Return a package's versions at the two ends, "" where an end has no exact one."""
        low, high = self._diff.good.get(change.id), self._diff.bad.get(change.id)
        return low.version if low else "", high.version if high else ""

    def apply(self, draft: Draft, chosen: Sequence[Change]) -> Draft:
        """Return the draft with the packages that differ, each at one end's version."""
        return replace(draft, packages=_joined(draft.packages, (*self._common, *self._diff.pins(chosen))))


class ReleaseAxis:
    """The releases of one package, from one version to another: each step is a change that needs all earlier ones.

    Args:
        name: of the package.
        releases: versions, from the good end's to the bad end's.
    """

    is_ordered = True

    def __init__(self, name: str, releases: Sequence[str]) -> None:
        self._name, self._releases = name, tuple(releases)
        steps = pairwise(releases)
        self.changes = tuple(
            Change(ChangeKind.PACKAGE, f"{name} {high}", f"{name} {high}: {low} -> {high}") for low, high in steps
        )

    def versions_of(self, change: Change) -> tuple[str, str]:
        """Return the versions before and after a step."""
        idx = self.changes.index(change)
        return self._releases[idx], self._releases[idx + 1]

    def apply(self, draft: Draft, chosen: Sequence[Change]) -> Draft:
        """Return the draft with the release that holds just these steps.

        Raises:
            UnbuildableError: no release does.
        """
        if tuple(chosen) != self.changes[: len(chosen)]:
            raise UnbuildableError(f"a release of {self._name} holds what the earlier ones changed")
        laid = f"{self._name}=={self._releases[len(chosen)]}"
        return replace(draft, packages=_joined(draft.packages, (laid,)))


class PackageCommitAxis:
    """The commits of one package's repository: each state is built as a wheel and laid over the environment.

    Args:
        name: of the package.
        commits: of its repository.
        source: that repository.
        python: interpreter that builds the wheels.
    """

    is_ordered = True

    def __init__(self, name: str, commits: CommitRange, source: Repository, *, python: str) -> None:
        self._name, self._source, self._python = name, source, python
        self._states = CommitStates(commits, source.git)
        self.changes = tuple(
            replace(change, detail=f"{change.detail}, in the repository of {name}") for change in commits.changes
        )
        self._place = {change.id: idx for idx, change in enumerate(self.changes)}

    def apply(self, draft: Draft, chosen: Sequence[Change]) -> Draft:
        """Return the draft with a wheel of the state that holds these commits.

        Raises:
            UnbuildableError: a conflict, or the wheel cannot be built.
        """
        commit, _ = self._states.state_of(make_point(0, plus=tuple(self._place[change.id] for change in chosen)))
        # its own repository has the tags that some packages take their version from
        place = self._source.root if self._source.has_own(commit) else self._source.mirror
        wheel = wheel_of_commit(place, commit, self._source.home / "wheels" / self._source.key, python=self._python)
        return replace(draft, packages=_joined(draft.packages, (requirement_of_wheel(wheel),)))


class TreePackages:
    """The packages that a commit's own requirement files name and that the inherited environment has not.

    Args:
        git: on our mirror.
        files: paths in the tree; a tree without one of them names nothing in it.
        installed: `name==version` of what the interpreter has.
    """

    def __init__(self, git: Git, files: Sequence[str], installed: Sequence[str]) -> None:
        self._git, self._files = git, tuple(files)
        self._installed = {name: pin.version for name, pin in pins_of(installed).items()}
        self._of_tree: dict[str, tuple[str, ...]] = {}

    def packages_of(self, tree: str) -> tuple[str, ...]:
        """Return the requirements that a tree names, exactly, and that are not installed already.

        Raises:
            UnbuildableError: one of its files cannot be read.
        """
        if tree not in self._of_tree:
            self._of_tree[tree] = self._read(tree)
        return self._of_tree[tree]

    def _read(self, tree: str) -> tuple[str, ...]:
        pins: dict[str, Pin] = {}
        for path in self._files:
            text = read_file(self._git, tree, path)
            if text is not None:
                try:
                    pins |= read_packages_text(path, text, include=lambda inner: self._include(tree, inner))
                except InputError as error:
                    raise UnbuildableError(f"its packages cannot be read: {error.message}") from error
        # a range is no version: what is installed stands for it
        exact = [pin for pin in pins.values() if pin.is_exact and not pin.is_conda]
        return tuple(sorted(pin.requirement for pin in exact if self._installed.get(pin.name) != (pin.version or None)))

    def _include(self, tree: str, path: str) -> str:
        text = read_file(self._git, tree, path)
        if text is None:
            raise FileNotFoundError(path)
        return text


def pins_of(requirements: Sequence[str]) -> Mapping[str, Pin]:
    """Return pins by name, given one requirement for each package, in their order."""
    return read_packages_text("requirements.txt", "\n".join(requirements)) if requirements else {}


def _joined(packages: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    """Return requirements by name; those of `more` take the place of others for the same package."""
    joined = {**pins_of(packages), **pins_of(more)}
    return tuple(joined[name].requirement for name in sorted(joined))
