"""A commit of a package's own repository as a wheel, so that it is laid over an environment like a release.

The repository is only read: the commit is checked out in a temporary folder that borrows its objects and knows its
tags (setuptools-scm and its like ask git for the version). Two commits often have one version, so each wheel lies in a
folder of its own and is asked for by its path and content.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.utils import parse_wheel_filename

from bisect_train.changes.plumbing import decode, failure_of, isolated_environment, quote_path, run_git
from bisect_train.core.errors import InputError, MachineError, UnbuildableError

__all__ = ["is_repository", "requirement_of_wheel", "wheel_of_commit"]

_LIMIT_S = 1800.0
_SAID_LINES = 12
_EPOCH = "315532800"
"""1980-01-01, the earliest that an archive can hold: a commit that is built again gives the same wheel."""
_DROPPED = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_REQUIREMENT")


def wheel_of_commit(repo: Path, commit: str, out: Path, *, python: str = sys.executable) -> Path:
    """Return a wheel of a commit, built once.

    It is built without isolation first, with the build tools that the interpreter has (no network is needed then); if
    that fails, pip fetches what `[build-system]` asks for.

    Args:
        repo: repository of the package: a work tree or a bare one.
        commit: revision in it.
        out: folder that keeps the wheels, one sub-folder a commit.
        python: interpreter that builds.
    Raises:
        InputError: no repository, or no such commit.
        UnbuildableError: the commit does not build; ends with what the build said last.
        MachineError: the disk or git cannot do it.
    """
    git_dir, found = _find_commit(repo, commit)
    kept = out / found
    wheels = sorted(kept.glob("*.whl"))
    if wheels:
        return wheels[0]
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"{found[:12]}-", dir=out) as scratch:
            source, built = Path(scratch) / "source", Path(scratch) / "wheels"
            _check_out(git_dir, found, source)
            _build(source, built, python=python, shown=f"{repo.name} {found[:12]}")
            _put_in_place(built, kept)
    except OSError as error:
        raise MachineError(f"cannot write the wheel of {found[:12]}: {error.strerror}", hint=f"make room in {out}") from None
    return sorted(kept.glob("*.whl"))[0]


def requirement_of_wheel(wheel: Path) -> str:
    """Return the requirement of a wheel on this disk, with its content's digest, which pip checks."""
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return f"{parse_wheel_filename(wheel.name)[0]} @ {wheel.absolute().as_uri()}#sha256={digest}"


def _find_commit(repo: Path, commit: str) -> tuple[Path, str]:
    """Return the git folder that holds the objects, and the commit's 40 hex digits."""
    if not repo.is_dir():
        raise InputError(f"{repo}: there is no such folder", hint="give the package's repository: --package-repo NAME=DIR")
    place = _ask(repo, "rev-parse", "--path-format=absolute", "--git-common-dir")
    if place is None:
        raise InputError(f"{repo} is no git repository", hint="clone the package and name the clone: --package-repo NAME=DIR")
    found = _ask(repo, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}")
    if found is None:
        raise InputError(f"{repo} has no commit {commit}", hint=f"look at `git -C {repo} log --oneline`")
    return Path(place), found


def is_repository(folder: Path) -> bool:
    """Return whether a folder is the top of a git repository, or a bare one; one that merely lies in another is not."""
    if _ask(folder, "rev-parse", "--is-inside-git-dir") == "true":  # a bare one, or where git keeps a submodule's
        return True
    top = _ask(folder, "rev-parse", "--show-toplevel")
    return top is not None and Path(top).resolve() == folder.resolve()


def _ask(repo: Path, *args: str) -> str | None:
    result = run_git(args, env=isolated_environment(), settings=("safe.directory=*",), cwd=repo)
    return decode(result.stdout).strip() if result.returncode == 0 else None


def _check_out(git_dir: Path, commit: str, folder: Path) -> None:
    """Check a commit out into a new folder whose own git folder borrows the repository's objects."""
    folder.mkdir()
    _git(folder, "init", "--quiet", "--template=", ".")
    (folder / ".git/objects/info").mkdir(exist_ok=True)
    (folder / ".git/objects/info/alternates").write_text(f"{quote_path(git_dir / 'objects')}\n", encoding="utf-8")
    shallow = git_dir / "shallow"
    if shallow.is_file():
        shutil.copyfile(shallow, folder / ".git/shallow")
    tags = run_git(
        ("for-each-ref", "--format=create %(refname) %(objectname)", "refs/tags"),
        env=isolated_environment({"GIT_DIR": str(git_dir)}),
        cwd=git_dir,
    )
    _git(folder, "update-ref", "--stdin", stdin=tags.stdout)
    _git(folder, "checkout", "--quiet", "--force", "--detach", commit)


def _git(folder: Path, *args: str, stdin: bytes = b"") -> None:
    result = run_git(args, env=isolated_environment(), stdin=stdin, cwd=folder)
    if result.returncode:
        raise failure_of(args, result, git_dir=folder)


def _build(source: Path, out: Path, *, python: str, shown: str) -> None:
    """Build a wheel of a source folder. Raises UnbuildableError."""
    said = ""
    for isolation in (["--no-build-isolation"], []):
        command = [python, "-m", "pip", "--disable-pip-version-check", "--no-input", "wheel", "--no-deps", *isolation]
        try:
            done = subprocess.run(
                [*command, "--quiet", "--wheel-dir", str(out), str(source)],
                cwd=source.parent,
                env=_build_environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_LIMIT_S,
            )
        except FileNotFoundError:
            raise MachineError(f"the interpreter {python} was not found", hint="give one with --python") from None
        except subprocess.TimeoutExpired:
            raise UnbuildableError(f"{shown} was not built within {_LIMIT_S:.0f} s") from None
        if done.returncode == 0 and list(out.glob("*.whl")):
            return
        said = said or _last_lines(done.stdout + b"\n" + done.stderr)
    raise UnbuildableError(f"{shown} does not build: {said}", hint="mark the commit as untestable, or repair its build")


def _build_environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in _DROPPED and not key.startswith("GIT_")}
    return {"SOURCE_DATE_EPOCH": _EPOCH, **kept}


def _last_lines(output: bytes) -> str:
    lines = [line.rstrip() for line in output.decode("utf-8", errors="replace").splitlines() if line.strip()]
    return "\n".join(lines[-_SAID_LINES:]) or "pip said nothing"


def _put_in_place(built: Path, kept: Path) -> None:
    """Move the finished folder to its name; another process that was quicker has made the same."""
    try:
        built.rename(kept)
    except OSError:
        if not list(kept.glob("*.whl")):
            raise
