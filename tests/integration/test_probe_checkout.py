"""Checkout slots: switched by difference, clean, verified, and made anew when a program ruins them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bisect_train.core.changes import Subtree
from bisect_train.core.executor import ProbeLost
from bisect_train.core.fingerprint import EndingKind
from bisect_train_workers.checkout import Slot, switch_slot, take_slot
from bisect_train_workers.gitcmd import run_git
from bisect_train_workers.mirror import Mirror
from bisect_train_workers.node import NodeHome
from tests.support.probes import Commit, TinyRepo, make_job, make_settings, pack_of, result_of, run_job

SHOW = """
import os, subprocess
def git(*args):
    done = subprocess.run(['git', *args], capture_output=True, text=True)
    return done.returncode, done.stdout.strip() + done.stderr.strip()
print(git('rev-parse', 'HEAD')); print(git('status', '--porcelain')); print(git('log', '-1', '--format=%s'))
print(sorted(n for n in os.listdir('.') if n != '.git'))
"""
PLAIN = make_settings(needs_recorder=False)


def switched(home: Path, commit: Commit, *, subtrees: tuple[Subtree, ...] = (), packs: tuple = ()) -> Path:
    """Bring a slot to a commit and return its checkout (the slot is free again)."""
    job = make_job(commit, subtrees=subtrees, packs=packs)
    repo = NodeHome(home).repo("repo")
    by_id = {pack.id: pack.data for pack in job.packs}
    mirror = Mirror(repo)
    mirror.add_packs(tuple(by_id), by_id.__getitem__)
    with take_slot(repo) as slot:
        assert switch_slot(slot, mirror, job.spec.variant) == []
        return slot.path


def names_in(path: Path) -> list[str]:
    return sorted(item.name for item in path.iterdir())


def test_checkout_lets_the_program_call_git(tmp_path: Path) -> None:
    repo = TinyRepo(tmp_path / "r")
    repo.commit({"train.py": "", "old.py": ""}, message="first")
    second = repo.commit({"train.py": SHOW, "old.py": None}, message="second")
    log = result_of(make_job(second, settings=PLAIN), tmp_path / "n").log_tail.splitlines()
    assert log == [str((0, second.id)), str((0, "")), str((0, "second")), "['train.py']"]


def test_checkout_of_an_unshipped_commit_still_answers(tmp_path: Path) -> None:
    repo = TinyRepo(tmp_path / "r")
    made = repo.commit({"train.py": SHOW})
    bare = Commit("0" * 40, made.tree, pack_of(repo, made.tree))
    log = result_of(make_job(bare, settings=PLAIN), tmp_path / "n").log_tail.splitlines()
    assert log[1:] == [str((0, "")), str((0, "bisect-train variant")), "['train.py']"]


def test_checkout_keeps_modes_links_and_bytes(tmp_path: Path) -> None:
    repo = TinyRepo(tmp_path / "r")
    repo.commit({"run.sh": "#!/bin/sh\n", "crlf.txt": b"a\r\nb\r\n", "ä b.txt": "x", "Case.py": "1", "case.py": "2"})
    (repo.folder / "link").symlink_to("run.sh")
    (repo.folder / "run.sh").chmod(0o755)
    path = switched(tmp_path / "n", repo.commit({}))
    assert os.access(path / "run.sh", os.X_OK) and (path / "link").readlink() == Path("run.sh")
    assert (path / "crlf.txt").read_bytes() == b"a\r\nb\r\n" and (path / "ä b.txt").exists()
    assert ((path / "Case.py").read_text(), (path / "case.py").read_text()) == ("1", "2")


def test_checkout_switches_back_and_forth_without_leftovers(tmp_path: Path) -> None:
    repo = TinyRepo(tmp_path / "r")
    first = repo.commit({"a.py": "1", "pkg/x.py": "1", "will_be_dir": "file", ".gitignore": "*.pyc\nout/\n"})
    repo.commit({"a.py": "2", "pkg/x.py": None, "will_be_dir": None})
    (repo.folder / "pkg").rmdir()
    second = repo.commit({"pkg": "file", "will_be_dir/y.py": "2"})
    for _ in range(2):
        path = switched(tmp_path / "n", first)
        assert (path / "a.py").read_text() == "1" and (path / "pkg/x.py").exists()
        (path / "out").mkdir()
        (path / "out/model.pt").write_text("stale")
        (path / "pkg/x.pyc").write_text("stale")
        path = switched(tmp_path / "n", second)
        assert names_in(path) == [".git", ".gitignore", "a.py", "pkg", "will_be_dir"]


def _edit(path: Path) -> None:
    before = (path / "a.py").stat()
    (path / "a.py").write_text("9")
    os.utime(path / "a.py", ns=(before.st_atime_ns, before.st_mtime_ns))


def _remove_git(path: Path) -> None:
    (path / ".git").rename(path / "git-gone")


def _break_index(path: Path) -> None:
    (path / ".git/index").write_bytes(b"broken")


def _lock_index(path: Path) -> None:
    (path / ".git/index.lock").write_bytes(b"")


def _commit_more(path: Path) -> None:
    (path / "a.py").write_text("mine")
    who = {"GIT_AUTHOR_NAME": "u", "GIT_AUTHOR_EMAIL": "u", "GIT_COMMITTER_NAME": "u", "GIT_COMMITTER_EMAIL": "u"}
    run_git(["checkout", "-q", "-b", "mine"], cwd=path)
    run_git(["commit", "-qam", "mine"], cwd=path, env=who)


def _assume_unchanged(path: Path) -> None:
    run_git(["update-index", "--assume-unchanged", "a.py"], cwd=path)
    (path / "a.py").write_text("hidden edit")


def _skip_worktree(path: Path) -> None:
    run_git(["update-index", "--skip-worktree", "a.py"], cwd=path)
    (path / "a.py").write_text("hidden edit")


def _replace_object(path: Path) -> None:
    blobs = [run_git(["hash-object", "-w", "--stdin"], cwd=path, stdin=text).strip() for text in (b"1", b"other")]
    run_git(["replace", "-f", *blobs], cwd=path)
    (path / "a.py").unlink()


def _nest_repository(path: Path) -> None:
    (path / "nested").mkdir()
    run_git(["init", "-q"], cwd=path / "nested")


def _remove_everything(path: Path) -> None:
    for name in set(names_in(path)) - {".git"}:
        (path / name).unlink()


def _git_is_a_file(path: Path) -> None:
    _remove_git(path)
    (path / ".git").write_text("gitdir: /nowhere\n")


def _git_is_a_link(path: Path) -> None:
    (path / ".git").rename(path.parent / "elsewhere")
    (path / ".git").symlink_to(path.parent / "elsewhere")


def _fill_git(path: Path) -> None:
    (path / ".git/hooks").mkdir()
    (path / ".git/hooks/post-checkout").write_text("#!/bin/sh\ntouch ran\n")
    (path / ".git/refs/heads").mkdir()
    (path / ".git/refs/heads/main").write_text("0" * 40)
    (path / ".git/info/sparse-checkout").write_text("/nothing\n")


def _swap_in_git(path: Path) -> None:
    (path / ".git/refs").rmdir()
    (path / ".git/refs").symlink_to(path.parent)
    (path / ".git/info/exclude").unlink(missing_ok=True)
    (path / ".git/info").rmdir()
    (path / ".git/info").write_text("a file")


def _sparse(path: Path) -> None:
    run_git(["sparse-checkout", "set", "--no-cone", "/nothing"], cwd=path)


@pytest.mark.parametrize(
    "ruin",
    [
        *(_edit, _remove_git, _break_index, _lock_index, _commit_more, _assume_unchanged, _skip_worktree, _replace_object),
        *(_nest_repository, _remove_everything, _sparse, _git_is_a_file, _git_is_a_link, _fill_git, _swap_in_git),
    ],
)
def test_checkout_that_a_program_ruined_is_right_again(tmp_path: Path, ruin) -> None:  # type: ignore[no-untyped-def]
    repo = TinyRepo(tmp_path / "r")
    commit = repo.commit({"a.py": "1", "b.py": "1"})
    path = switched(tmp_path / "n", commit)
    ruin(path)
    again = switched(tmp_path / "n", commit)
    assert again == path
    assert (path / "a.py").read_text() == "1" and names_in(path) == [".git", "a.py", "b.py"]
    assert run_git(["rev-parse", "HEAD"], cwd=path).strip() == commit.id
    assert (path / ".git/HEAD").read_text() == f"{commit.id}\n"
    assert names_in(path / ".git") == ["HEAD", "config", "index", "info", "objects", "refs", "shallow"]
    assert names_in(path / ".git/info") == names_in(path / ".git/refs") == []


def test_checkout_brings_submodules_and_cleans_them(tmp_path: Path) -> None:
    inner = TinyRepo(tmp_path / "inner")
    one = inner.commit({"lib.py": "1", "deep/x.py": "1"})
    two = inner.commit({"lib.py": "2", "deep/x.py": None})
    repo = TinyRepo(tmp_path / "r")
    plain = repo.commit({"train.py": SHOW})
    with_module = []
    for commit in (one, two):
        repo.git("update-index", "--add", "--cacheinfo", f"160000,{commit.id},third/lib")
        with_module.append(repo.commit_index("module"))
    for idx, commit in ((0, one), (1, two), (0, one)):
        path = switched(tmp_path / "n", with_module[idx], subtrees=(Subtree("third/lib", commit.tree),), packs=(commit.pack,))
        assert (path / "third/lib/lib.py").read_text() == str(idx + 1)
        assert (path / "third/lib/deep/x.py").exists() == (idx == 0)
        assert not (path / "third/lib/stale.pyc").exists()
        assert run_git(["status", "--porcelain"], cwd=path) == ""
        (path / "third/lib/stale.pyc").write_text("")
        (path / "third/lib/lib.py").write_text("edited")
    path = switched(tmp_path / "n", plain)
    assert not (path / "third").exists()


def test_checkout_needs_no_second_copy_of_a_pack(tmp_path: Path) -> None:
    commit = TinyRepo(tmp_path / "r").commit({"a.py": "1"})
    mirror = Mirror(NodeHome(tmp_path / "n").repo("repo"))
    asked: list[str] = []

    def load(pack_id: str) -> bytes:
        asked.append(pack_id)
        return commit.pack.data

    for _ in range(2):
        mirror.add_packs((commit.pack.id,), load)
    assert asked == [commit.pack.id]


def test_checkout_from_a_broken_mirror_fills_it_anew(tmp_path: Path) -> None:
    repo = TinyRepo(tmp_path / "r")
    job = make_job(repo.commit({"train.py": "print(1)"}), settings=PLAIN)
    assert result_of(job, tmp_path / "n").log_tail == "1\n"
    for pack in (tmp_path / "n/repos/repo/mirror.git/objects/pack").iterdir():
        pack.unlink()
    (tmp_path / "n/repos/repo/slots/0/tree/train.py").write_text("x")
    assert result_of(job, tmp_path / "n").log_tail == "1\n"


def test_checkout_without_its_objects_is_lost(tmp_path: Path) -> None:
    commit = TinyRepo(tmp_path / "r").commit({"train.py": "print(1)"})
    last = run_job(make_job(Commit(commit.id, "1" * 40, commit.pack)), tmp_path / "n")[-1]
    assert isinstance(last, ProbeLost) and "1111" in last.reason


def test_checkout_slots_are_held_apart(tmp_path: Path) -> None:
    with take_slot(tmp_path) as first, take_slot(tmp_path) as second:
        assert isinstance(first, Slot) and first.path != second.path
    with take_slot(tmp_path) as third:
        assert third.path == first.path


def test_checkout_with_lfs_pointers_warns_and_explains(tmp_path: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n"
    files = {".gitattributes": "*.bin filter=lfs\n", "w.bin": pointer, "train.py": "raise ValueError('bad magic')\n"}
    commit = TinyRepo(tmp_path / "r").commit(files)
    result = result_of(make_job(commit), tmp_path / "n")
    assert any("w.bin" in warning for warning in result.warnings)
    assert result.fingerprint.ending.kind is EndingKind.CRASHED
    assert "w.bin" in result.fingerprint.ending.message


def test_checkout_that_git_always_shows_as_modified_warns(tmp_path: Path) -> None:
    repo = TinyRepo(tmp_path / "r")
    repo.commit({"a.txt": b"x\r\ny\r\n", "train.py": "print(1)"})
    commit = repo.commit({".gitattributes": "other text\n"})
    repo.git("rm", "-q", "--cached", ".gitattributes")
    (repo.folder / ".gitattributes").write_text("*.txt text\n")
    repo.git("update-index", "--add", ".gitattributes")
    commit = repo.commit_index()
    result = result_of(make_job(commit, settings=PLAIN), tmp_path / "n")
    assert result.log_tail == "1\n" and any("a.txt" in warning for warning in result.warnings)
