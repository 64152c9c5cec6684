"""Git in repositories that somebody else arranged: what they name is no option, and what they plant is not run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from bisect_train.changes.fetching import fetch_branch
from bisect_train.changes.hydra_axis import _copy_of
from bisect_train.changes.packages.clones import clone_of
from bisect_train.changes.space import build_space
from bisect_train.core.changes import Point, Variant
from bisect_train.core.errors import InputError, RecipeError, RevisionError
from bisect_train_workers.checkout import switch_slot, take_slot
from bisect_train_workers.gitcmd import GitError
from bisect_train_workers.mirror import Mirror
from bisect_train_workers.node import NodeHome
from tests.support.git_repos import UserRepo, git, question_of
from tests.support.probes import TinyRepo, make_job

OPTIONS = ["--upload-pack=touch hit", "--output=hit", "-C/tmp", "--exec=touch hit", "--git-dir=/x", "-", "--"]
TRAP = "#!/bin/sh\ntouch {hit}\ncat\n"


@pytest.fixture
def user(tmp_path: Path) -> UserRepo:
    repo = UserRepo.create(tmp_path / "user")
    repo.commit({"train.py": "LR = 1\n"}, message="first")
    repo.commit({"train.py": "LR = 2\n"}, message="second")
    return repo


def plant_traps(repo: UserRepo, hit: Path) -> None:
    """Make git run a program of somebody's choice wherever settings, attributes and hooks can make it."""
    trap = repo.path.parent / "trap"
    trap.write_text(TRAP.format(hit=hit))
    trap.chmod(0o755)
    repo.commit({".gitattributes": "* filter=evil diff=evil merge=evil\n", "train.py": "LR = 3\n"}, message="attributes")
    for key in ("core.fsmonitor", "core.editor", "core.pager", "core.sshCommand", "core.askPass", "diff.external"):
        repo.git("config", key, str(trap))
    for key in ("filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "diff.evil.textconv", "diff.evil.command"):
        repo.git("config", key, str(trap))
    repo.git("config", "merge.evil.driver", str(trap))
    repo.git("config", "alias.rev-parse", f"!{trap}")
    hooks = repo.path.parent / "hooks"
    hooks.mkdir()
    for name in ("post-checkout", "post-index-change", "pre-auto-gc", "reference-transaction", "pre-commit", "post-rewrite"):
        (hooks / name).write_text(TRAP.format(hit=hit))
        (hooks / name).chmod(0o755)
    repo.git("config", "core.hooksPath", str(hooks))


@pytest.mark.parametrize("text", [*OPTIONS, "HEAD\n--output=hit", "\0HEAD", ""])
def test_revision_that_is_an_option_is_refused(user: UserRepo, tmp_path: Path, text: str) -> None:
    repository = user.open(tmp_path / "home")
    with pytest.raises(RevisionError):
        repository.resolve(text)
    assert not list(tmp_path.rglob("hit"))


@pytest.mark.parametrize("text", [*OPTIONS, "main:refs/heads/main", "main\nother", "../main", "a..b", "x.lock"])
def test_branch_that_is_no_name_is_not_fetched(user: UserRepo, tmp_path: Path, text: str) -> None:
    user.git("remote", "add", "origin", str(tmp_path / "user"))
    with pytest.raises(RevisionError):
        fetch_branch(user.open(tmp_path / "home"), "origin", text)
    assert user.git("for-each-ref", "refs/remotes") == "" and not list(tmp_path.rglob("hit"))


@pytest.mark.parametrize("address", ["ext::sh -c 'touch hit'", "--upload-pack=touch hit", "\next::sh", "fd::17", "user@host:x"])
def test_package_repository_at_an_address_that_runs_something_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(InputError):
        clone_of(address, tmp_path / "home")
    assert not list(tmp_path.rglob("hit"))


def test_traps_in_a_repositorys_settings_are_not_run(user: UserRepo, tmp_path: Path) -> None:
    good, hit = user.head, tmp_path / "hit"
    plant_traps(user, hit)
    hit.unlink(missing_ok=True)
    user.write("train.py", "LR = 4\n")
    repository = user.open(tmp_path / "home")
    commit = repository.resolve("HEAD")
    space = build_space(repository, question_of(good, commit))
    space.packs(space.variant(Point(1)))
    assert repository.tracked_files() and repository.snapshot_worktree() != commit
    repository.git.run("diff", good, commit)
    assert not hit.exists()
    subprocess.run(["git", "-C", user.path, "status"], capture_output=True, check=False)
    assert hit.exists(), "the traps work where nothing keeps git from them"


def test_checkout_on_a_node_runs_no_trap_that_a_program_left_in_it(tmp_path: Path) -> None:
    repo, hit = TinyRepo(tmp_path / "r"), tmp_path / "hit"
    commits = [repo.commit({".gitattributes": "* filter=evil\n", "a.py": str(idx)}) for idx in range(2)]
    trap = tmp_path / "trap"
    trap.write_text(TRAP.format(hit=hit))
    trap.chmod(0o755)
    home = NodeHome(tmp_path / "node").repo("repo")
    mirror = Mirror(home)
    for commit in commits:
        job = make_job(commit)
        packs = {pack.id: pack.data for pack in job.packs}
        mirror.add_packs(tuple(packs), packs.__getitem__)
        with take_slot(home) as slot:
            switch_slot(slot, mirror, job.spec.variant)
        made = slot.path / ".git"
        lines = [
            f'[core]\n\thooksPath = {made}/hooks\n\tfsmonitor = {trap}\n[filter "evil"]\n\tsmudge = {trap}\n\tclean = {trap}\n'
        ]
        (made / "config").write_text((made / "config").read_text() + "".join(lines))
        (made / "hooks").mkdir()
        for name in ("post-checkout", "post-index-change"):
            (made / "hooks" / name).symlink_to(trap)
    assert (slot.path / "a.py").read_text() == "1" and not hit.exists()


def test_package_clone_within_a_hook_leaves_the_users_repository(
    user: UserRepo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = UserRepo.create(tmp_path / "package")
    package.commit({"setup.py": "\n"})
    user.git("remote", "add", "origin", f"file://{package.path}")
    user.git("update-ref", "refs/remotes/origin/mine", "HEAD")
    before = sorted((user.path / ".git").rglob("*")), user.git("for-each-ref")
    for name, place in (("GIT_DIR", ".git"), ("GIT_OBJECT_DIRECTORY", ".git/objects"), ("GIT_INDEX_FILE", ".git/index")):
        monkeypatch.setenv(name, str(user.path / place))
    address = f"file://{package.path}"
    clone_of(address, tmp_path / "home")
    newer = package.commit({"setup.py": "1\n"})
    clone = clone_of(address, tmp_path / "home")
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    assert (sorted((user.path / ".git").rglob("*")), user.git("for-each-ref")) == before
    assert subprocess.run(["git", "-C", clone, "cat-file", "-e", newer], check=False).returncode == 0


def commit_of_tree(repo: UserRepo, name: str, *, mode: str = "040000") -> str:
    """Return a commit whose folder `conf` holds an entry of any name, which `git add` would refuse: a folder with a file."""
    blob = git(repo.path, "hash-object", "-w", "--stdin", stdin=b"lr: 1\n")
    inner = git(repo.path, "mktree", stdin=f"100644 blob {blob}\tescaped.yaml\n".encode())
    entries = f"100644 blob {blob}\tmain.yaml\n{mode} tree {inner}\t{name}\n"
    conf = git(repo.path, "mktree", stdin=entries.encode())
    top = git(repo.path, "mktree", stdin=f"040000 tree {conf}\tconf\n".encode())
    return repo.git("commit-tree", top, "-m", "evil")


@pytest.mark.parametrize("name", ["..", ".git"])
def test_tree_with_a_name_that_leads_out_is_not_written(user: UserRepo, tmp_path: Path, name: str) -> None:
    commit = commit_of_tree(user, name)
    repository = user.open(tmp_path / "home")
    folder = tmp_path / "home" / "hydra"
    if name == "..":
        with pytest.raises(RecipeError, match=r"conf|leads out of its folder"):
            _copy_of(repository.git, commit, "conf", folder)
        assert list(folder.iterdir()) == []
    mirror = Mirror(NodeHome(tmp_path / "node").repo("repo"))
    objects = user.git("rev-list", "--objects", "--no-object-names", commit)
    data = subprocess.run(
        ["git", "-C", user.path, "pack-objects", "--stdout", "-q"],
        input=f"{objects}\n".encode(),
        capture_output=True,
        check=True,
    )
    mirror.add_packs(("evil",), lambda _: data.stdout)
    variant = Variant(user.git("rev-parse", f"{commit}^{{tree}}"), commit, ("python", "train.py"))
    with take_slot(NodeHome(tmp_path / "node").repo("repo")) as slot, pytest.raises(GitError, match="invalid path"):
        switch_slot(slot, mirror, variant)
    assert not list(tmp_path.rglob("escaped.yaml"))
