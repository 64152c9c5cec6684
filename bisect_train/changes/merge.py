"""Trees that nobody committed: a change left out of a later tree, added to an earlier one, or half-merged branches.

All by in-memory merges in our mirror. `git merge-tree --write-tree` takes a merge base on its command line only from git
2.40; so the three trees become three synthetic commits (the base without parents, the two others on top of it) and those are
merged. Authors and dates are fixed: the same trees give the same commits.
"""

from __future__ import annotations

from bisect_train.changes.plumbing import EMPTY_TREE, Git, GitCommandError, decode, failure_of, git_version, printable
from bisect_train.changes.worktree import write_commit
from bisect_train.core.errors import UnbuildableError

_MIN_GIT = (2, 38)
_MAX_SHOWN_FILES = 5


class ConflictError(UnbuildableError):
    """Changes touch the same lines.

    Attributes:
        what: what was tried, for a person.
        files: paths in conflict.
    """

    def __init__(self, what: str, files: tuple[str, ...]) -> None:
        shown = ", ".join(printable(name) for name in files[:_MAX_SHOWN_FILES])
        more = f" and {len(files) - _MAX_SHOWN_FILES} more" if len(files) > _MAX_SHOWN_FILES else ""
        super().__init__(f"{what}: conflict in {shown or 'the tree'}{more}")
        self.what = what
        self.files = files


class Merger:
    """Makes synthetic trees and commits in the mirror, and remembers them.

    Args:
        git: on our mirror.
    """

    def __init__(self, git: Git) -> None:
        self._git = git
        self._trees: dict[str, str] = {}
        self._merges: dict[tuple[str, str, str], str] = {}
        self._states: dict[tuple[str, ...], str] = {}

    def tree_of(self, commit: str) -> str:
        """Return a commit's tree.

        Raises:
            UnbuildableError: the commit is missing from the repository.
        """
        if commit not in self._trees:
            try:
                # not `rev-parse`: it wants the tree itself, which a partial clone may lack
                self._trees[commit] = self._git.text("log", "-1", "--format=%T", commit, "--")
            except GitCommandError as error:
                raise _unbuildable(f"commit {commit[:12]} cannot be read", error) from error
        return self._trees[commit]

    def pick(self, ours: str, *, before: str, after: str, what: str) -> str:
        """Return tree `ours` with the difference from tree `before` to tree `after` applied to it.

        Args:
            ours: tree to change.
            before, after: the trees around the change; swapped, the change is left out.
            what: what is tried, for the message.
        Raises:
            ConflictError: the change and the tree touch the same lines.
            UnbuildableError: git is older than 2.38, or an object is missing.
        """
        if before in (ours, after):
            return after if before == ours else ours
        key = (ours, before, after)
        if key not in self._merges:
            base = write_commit(self._git, before, message="bisect-train: base")
            left = write_commit(self._git, ours, message="bisect-train: ours", parents=(base,))
            right = write_commit(self._git, after, message="bisect-train: theirs", parents=(base,))
            self._merges[key] = self._merge(left, right, what=what)
        return self._merges[key]

    def state_of(self, heads: tuple[str, ...]) -> str:
        """Return the commit that holds all ancestors of these commits: the merge of them, made where nobody made it.

        Raises:
            ConflictError, UnbuildableError: as `pick`.
        """
        if heads not in self._states:
            state = heads[0]
            for head in heads[1:]:
                state = self._join(state, head)
            self._states[heads] = state
        return self._states[heads]

    def before_of(self, parents: tuple[str, ...]) -> str:
        """Return the tree that a commit's own change starts from: its parents' merge, empty for a root commit."""
        return self.tree_of(self.state_of(parents)) if parents else EMPTY_TREE

    def _join(self, ours: str, theirs: str) -> str:
        if self._git.succeeds("merge-base", "--is-ancestor", ours, theirs):
            return theirs
        if self._git.succeeds("merge-base", "--is-ancestor", theirs, ours):
            return ours
        what = f"{theirs[:12]} cannot be merged into {ours[:12]} before the merge that brought it in"
        tree = self._merge(ours, theirs, what=what)
        return write_commit(self._git, tree, message="bisect-train: half a merge", parents=(ours, theirs))

    def _merge(self, ours: str, theirs: str, *, what: str) -> str:
        if git_version() < _MIN_GIT:
            version = ".".join(map(str, git_version()))
            raise UnbuildableError(f"{what}: git {version} cannot merge in memory", hint="install git 2.38 or newer")
        options = ("--write-tree", "--allow-unrelated-histories", "--no-messages", "--name-only", "-z")
        result = self._git.attempt("merge-tree", *options, ours, theirs)
        tree, *files = decode(result.stdout).rstrip("\0").split("\0")
        if result.returncode == 1:
            raise ConflictError(what, tuple(dict.fromkeys(files)))
        if result.returncode != 0:
            raise _unbuildable(what, failure_of(("merge-tree",), result, git_dir=self._git.git_dir))
        return tree


def _unbuildable(what: str, error: GitCommandError) -> GitCommandError | UnbuildableError:
    """Return the error to raise: the machine's trouble as it is, everything else as a variant that cannot be built."""
    if error.is_machine_trouble:
        return error
    return UnbuildableError(f"{what}: {error.message}", hint=error.hint)
