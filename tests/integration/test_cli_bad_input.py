"""Bad input, each with its message and exit status 2; a machine that cannot do it, with status 1; help and empty stores."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bisect_train.cli.main import COMMANDS
from bisect_train.store.home import open_store
from tests.support.command_bench import BOTH, TRAINING, Run
from tests.support.git_repos import UserRepo, git, question_of


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("run", "--good", "nosuch", *TRAINING), "unknown revision 'nosuch'"),
        (("run", "--good", "old", "--bad", "mian", *TRAINING), "did you mean 'main'"),
        (("run", "--good", "main", "--bad", "HEAD", *TRAINING), "good and bad are the same commit"),
        (("run", "--good", "HEAD", "--bad", "old", *TRAINING), "swap"),
        (("run", "--good", "island", *TRAINING), "share no history"),
        (("run", "--good", "-x", *TRAINING), "'-x' is not a revision"),
        (("run", "--good", "old", "--bad", "--all", *TRAINING), "'--all' is not a revision"),
        (("run", "--good", "", *TRAINING), "is not a revision"),
        (("run", "--good", "old:train.py", *TRAINING), "blob"),
        (("run", *TRAINING), "--good"),
        (("run", "--good", "old"), "no training command was given"),
        (("run", "--good", "old", "--skip", "nosuch", *TRAINING), "nosuch"),
        (("run", "--good", "old", "--path", "nosuch/*", *TRAINING), "nosuch/*"),
        (("run", "--good", "old", "--skip-file", "nosuch.txt", *TRAINING), "--skip-file nosuch.txt cannot be read"),
        (("run", "--good", "old", "--fixup", "nosuch.patch", *TRAINING), "--fixup nosuch.patch cannot be read"),
        (
            ("check", "conf.yaml", "conf.yaml", "--fixup", ".", "--", "python", "train.py", "{config}"),
            "cannot be read: Is a dir",
        ),
        (("run", "--good", "old", "--budget-gpu-hours", "0", *TRAINING), "--budget-gpu-hours"),
        (("run", "--good", "old", "--budget-gpu-hours", "2", *TRAINING), "no probe uses a GPU, so --budget-gpu-hours limits"),
        (("run", "--good", "old", "--repo", "/nonexistent", *TRAINING), "/nonexistent does not exist"),
        (("run", "--good", "old", "--steps", "0", *TRAINING), "at least 1, or 'end'"),
        (("run", "--good", "old", "--steps", "ten", *TRAINING), "neither a number of optimizer steps nor 'end'"),
        (("run", "--good", "old", "--ranks", "0", *TRAINING), "--ranks"),
        (("run", "--good", "old", "--timeout", "0", *TRAINING), "--timeout"),
        (("run", "--good", "old", "--nosuch", *TRAINING), "No such option"),
        (("run", "--good", "old", "--metric", "vall_loss", *TRAINING), "unknown metric 'vall_loss'"),
        (("run", "--good", "old", "--criterion", "magic", *TRAINING), "magic"),
        (("run", "--good", "old", "--python", "/no/python", *TRAINING), "no such interpreter: '/no/python'"),
        (("run", "--good", "old", "--judge", "python 'open", *TRAINING), "cannot be read: No closing quotation"),
        (("run", "--good", "old", "--judge", " ", *TRAINING), "--judge was given no command"),
        (("run", "--good", "old", "--judge", "nosuchjudge x", *TRAINING), "the judging command is not found: 'nosuchjudge'"),
        (("run", "--good", "old", "--judge", "python nosuch.py", *TRAINING), "'nosuch.py' is not tracked by git at either end"),
        (("run", "--good", "old", "--judge", "./nosuch.sh", *TRAINING), "'./nosuch.sh' is not tracked by git at either end"),
        (("run", "--good", "old", "--judge", "bash nosuch.sh", *TRAINING), "'nosuch.sh' is not tracked by git at either end"),
        (("run", "--good", "old", "--judge", "python /no/such.py", *TRAINING), "no such judging script: '/no/such.py'"),
        (
            ("check", "conf.yaml", "--set", "lr=7", "--judge", "python nosuch.py", "--", "python", "train.py", "{config}"),
            "'nosuch.py' is not tracked by git",
        ),
        (("run", "--good", "old", "--", "nosuchprogram", "train.py"), "command not found: 'nosuchprogram'"),
        (("run", "--good", "old", "--", "torchrun", "--master-port={master_port}", "t.py"), "{master_port}, which stands for"),
        (("run", "--good", "old", "--", "./nosuch.sh"), "command not found: './nosuch.sh'"),
        (("run", "--good", "old", "--", "python", "nosuch.py"), "no such script: 'nosuch.py' is not tracked at either end"),
        (("run", "--good", "old", "--", "python", "-u", "-X", "dev", "a/b.py"), "no such script: 'a/b.py'"),
        (("run", "--good", "old", "--", "python", "/no/such.py"), "no such script: '/no/such.py'"),
        (("run", "--good", "old", "--recipe", "no.yaml", *TRAINING), "no.yaml: there is no such recipe"),
        (("run", "--good", "old", "--good-config", "conf.yaml", *TRAINING), "--good-config and --bad-config belong together"),
        (("run", "--good", "old", "--", "python", "train.py", "{config}"), "no config was named"),
        (("check", "conf.yaml", "--", "python", "train.py", "{config}"), "only one config was given"),
        (("check", "conf.yaml", "no.yaml", "--", "python", "train.py", "{config}"), "no.yaml"),
        (("check", "no.yaml", "conf.yaml", "--", "python", "train.py", "{config}"), "no.yaml"),
        (("check", "conf.yaml", "--set", "lr", "--", "python", "train.py", "{config}"), "lr"),
        (("check", "conf.yaml", "--set", "lr=7", "--", "python", "train.py"), "does not say where the config file goes"),
        (("compare", "old", "nosuch", *TRAINING), "unknown revision 'nosuch'"),
        (("probe", "--rev", "nosuch", *TRAINING), "unknown revision 'nosuch'"),
        (("probe", "--", "python", "nosuch.py"), "no such script"),
        (("diff", "--good", "nosuch"), "unknown revision 'nosuch'"),
        (("show", "abcd"), "'abcd'"),
        (("init", "--repo", "/nonexistent"), "/nonexistent"),
        (("nosuch",), "No such command"),
    ],
)
def test_bad_input_has_its_message_and_status_2(run: Run, args: tuple[str, ...], message: str) -> None:
    status, out, err = run(*args)
    assert status == 2, err
    assert message in re.sub(r"[│\s]+", " ", err), err
    assert "Traceback" not in err and not out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("comand: [python, train.py]\n", "unknown key"),
        ("command: [python\n", "line"),
        ("- a list\n", "a recipe holds keys and values"),
        ("command: 7\n", "command"),
        ("shrink: {steps: [0]}\n", "steps"),
        ("metrics: {val: {from: log, pattern: '('}}\n", "pattern"),
        (b"\xff\xfe\x00", "UTF-8"),
    ],
)
def test_recipe_that_cannot_be_used_is_bad_input(run: Run, tmp_path: Path, text: str | bytes, message: str) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_bytes(text if isinstance(text, bytes) else text.encode())
    status, _, err = run("run", "--good", "old", "--recipe", str(recipe), *TRAINING)
    assert status == 2 and message in err and "recipe.yaml" in err, err
    assert run("run", "--good", "old", "--recipe", str(tmp_path), *TRAINING)[0] == 2


@pytest.mark.parametrize(
    ("name", "text"), [("a.yaml", "lr: [1\n"), ("a.json", "{"), ("a.toml", "lr ="), ("a.yaml", b"\xff\xfe")]
)
def test_config_that_cannot_be_read_is_bad_input(run: Run, tmp_path: Path, name: str, text: str | bytes) -> None:
    config = tmp_path / name
    config.write_bytes(text if isinstance(text, bytes) else text.encode())
    status, _, err = run("check", "conf.yaml", str(config), "--", "python", "train.py", "{config}")
    assert status == 2 and name in err, err


def test_folder_that_is_no_repository_is_bad_input(run: Run, tmp_path: Path) -> None:
    status, _, err = run("run", "--good", "old", *TRAINING, folder=tmp_path)
    assert status == 2 and "is not a git repository" in err


def test_shallow_clone_is_bad_input(run: Run, repo: UserRepo, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--depth", "2", f"file://{repo.path}", "shallow")
    status, _, err = run("run", "--good", git(repo.path, "rev-parse", "old"), *TRAINING, folder=tmp_path / "shallow")
    assert status == 2 and "git fetch --unshallow" in err


def test_repository_without_commits_is_bad_input(run: Run, tmp_path: Path) -> None:
    UserRepo.create(tmp_path / "empty")
    status, _, err = run("run", "--good", "HEAD", *TRAINING, folder=tmp_path / "empty")
    assert status == 2 and "no commits yet" in err


def test_untracked_script_is_bad_input_that_says_what_to_do(run: Run, repo: UserRepo) -> None:
    (repo.path / "new.py").write_text("print(1)\n")
    try:
        status, _, err = run("run", "--good", "old", "--", "python", "new.py")
        assert status == 2 and "is not tracked by git at either end" in err and "git add new.py" in err
    finally:
        (repo.path / "new.py").unlink()


def test_script_that_a_recipe_brings_is_accepted(run: Run, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    (tmp_path / "code").mkdir()
    recipe.write_text(f"data: {{link: [{{from: {tmp_path}/code, to: code}}]}}\n")
    status, out, err = run(*BOTH, "--recipe", str(recipe), "--", "python", "code/train.py")
    assert status == 0 and "would bisect" in out, err
    recipe.write_text("setup: {run: [[python, make.py]]}\n")
    assert run(*BOTH, "--recipe", str(recipe), "--", "python", "made.py")[0] == 0


def test_launcher_is_looked_for_beside_the_interpreter_that_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "python").symlink_to(sys.executable)
    (tmp_path / "launch").write_text("#!/bin/sh\n")
    (tmp_path / "launch").chmod(0o755)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("command: [launch, train.py]\n")
    status, out, err = run(*BOTH, "--python", str(tmp_path / "python"), "--recipe", str(recipe))
    assert status == 0 and "would bisect" in out, err
    status, _, err = run(*BOTH, "--recipe", str(recipe))
    assert status == 2 and "command not found: 'launch'" in err and f"`command:` in {recipe} is run as it is" in err, err


def test_nothing_is_stored_or_run_for_bad_input(run: Run) -> None:
    run("run", "--good", "nosuch", *TRAINING)
    run("run", "--good", "old", "--", "python", "nosuch.py")
    status, out, _ = run("list")
    assert (status, out) == (0, "no bisection is stored yet\n")


@pytest.mark.parametrize("args", [("run", "--good", "old", *TRAINING), ("list",), ("resume",)])
def test_home_that_cannot_be_used_is_status_1(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...]
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("BISECT_TRAIN_HOME", str(tmp_path / "file" / "home"))
    status, _, err = run(*args)
    assert status == 1 and str(tmp_path / "file") in err and "BISECT_TRAIN_HOME=DIR" in err
    assert "Traceback" not in err


def test_database_that_is_none_is_status_1(run: Run, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "bisect-train.db").write_bytes(os.urandom(4096))
    status, _, err = run("list")
    assert status == 1 and "not a database" in err and "Traceback" not in err


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_command_has_an_example(run: Run, name: str) -> None:
    status, out, _ = run(name, "--help")
    assert status == 0 and "Example" in out and f"bisect-train {name}" in out


def test_help_of_the_group_names_all_commands(run: Run) -> None:
    status, out, _ = run("--help")
    assert status == 0 and all(name in out for name in COMMANDS) and "Examples" in out


@pytest.mark.parametrize("name", ["log", "status", "report", "cancel", "resume"])
def test_command_on_an_empty_store_is_bad_input(run: Run, name: str) -> None:
    status, out, err = run(name)
    assert status == 2 and "there is no bisection" in err and not out


def test_init_writes_a_recipe_that_a_dry_run_accepts(run: Run, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    status, out, _ = run("init", "--no-prove", "--output", str(recipe))
    assert status == 0 and str(recipe) in out
    status, out, err = run(*BOTH, "--recipe", str(recipe), "--", "python", "train.py")
    assert status == 0 and "would bisect" in out and "4 commits" in out, err
    status, _, err = run("init", "--output", str(recipe))
    assert status == 2 and "--force" in err


def test_dry_run_says_what_would_be_run_and_runs_nothing(run: Run) -> None:
    status, out, _ = run(*BOTH, "--steps", "7", *TRAINING)
    assert status == 0 and "7 steps x 1 rank" in out and "python train.py" in out
    assert run("list")[1] == "no bisection is stored yet\n"


PATCH = """\
diff --git a/settings.py b/settings.py
--- a/settings.py
+++ b/settings.py
@@ -1 +1 @@
-LR = 2
+LR = 2.0
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "fix.patch is empty"),
        (" \n\n", "fix.patch is empty"),
        ("From: me\n\njust words\n", "fix.patch is no patch that git can read: No valid patches in input"),
        (PATCH[:-5], "fix.patch is no patch that git can read: corrupt patch at line"),
        (PATCH.replace("/settings.py", "/../settings.py"), "touches '../settings.py', which is outside the tree"),
        (PATCH.replace("/settings.py", "//etc/passwd"), "touches '/etc/passwd', which is outside the tree"),
        (PATCH.replace("/settings.py", "/.git/config"), "touches '.git/config', which is outside the tree"),
        (PATCH.replace("LR = 2", "LR = 77"), "any of the 5 commits, at the last one because: patch failed: settings.py:1"),
        (
            PATCH.replace("settings.py", "nosuch.py"),
            "any of the 5 commits, at the last one because: nosuch.py: does not exist in index",
        ),
        ("x" * (8 * 2**20 + 1), "fix.patch is larger than 8 MiB"),
    ],
)
def test_fixup_that_cannot_be_used_is_bad_input(run: Run, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "fix.patch").write_text(text)
    status, _, err = run(*BOTH, "--fixup", str(tmp_path / "fix.patch"), *TRAINING)
    assert status == 2 and message in err and "\n  " in err, err
    assert run("list")[1] == "no bisection is stored yet\n"


def test_fixup_that_does_not_apply_starts_nothing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "fix.patch").write_text(PATCH)
    fixup = ("--fixup", str(tmp_path / "fix.patch"))
    status, _, err = run("run", "--good", "HEAD~1", *fixup, *TRAINING)
    assert status == 2 and "does not apply to any of the 2 commits" in err
    status, _, err = run("probe", "--rev", "HEAD", *fixup, *TRAINING)
    assert status == 2 and "does not apply to the commit: patch failed" in err
    assert run("list")[1] == "no bisection is stored yet\n"


def test_dry_run_says_how_many_commits_take_a_fixup(run: Run, tmp_path: Path) -> None:
    (tmp_path / "fix.patch").write_text(PATCH)
    (tmp_path / "new.patch").write_text("--- /dev/null\n+++ b/made.py\n@@ -0,0 +1 @@\n+print(1)\n")
    made = ("--fixup", str(tmp_path / "fix.patch"), "--fixup", str(tmp_path / "new.patch"), "--", "python", "./made.py")
    status, out, err = run(*BOTH, *made)  # the script comes with the second patch
    assert status == 0, err
    assert f"--fixup {tmp_path}/fix.patch applies to 1 of 5 commits" in out
    assert f"--fixup {tmp_path}/new.patch applies to 5 of 5 commits" in out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("main~1\n\nxyz\n", "skip.txt:3: unknown revision 'xyz'"),
        ("# main\nmain~1  # slow\nold..nosuch\n", "skip.txt:3: unknown revision 'nosuch'"),
        ("0123456789012345678901234567890123456789\n", "skip.txt:1: unknown revision '0123456789"),
        ("main~1 main~2\n", "skip.txt:1: unknown revision 'main~1 main~2'"),
        ("--all\n", "skip.txt:1: '--all' is not a revision"),
        ("main\n", "the bad end"),
        (b"\xff\xfe\x00", "skip.txt is not UTF-8 text"),
    ],
)
def test_skip_file_that_cannot_be_used_is_bad_input(run: Run, tmp_path: Path, text: str | bytes, message: str) -> None:
    (tmp_path / "skip.txt").write_bytes(text if isinstance(text, bytes) else text.encode())
    status, _, err = run("diff", "--good", "old", "--skip-file", str(tmp_path / "skip.txt"))
    assert status == 2 and message in err and "Traceback" not in err, err


def test_skip_file_adds_to_skip(run: Run, repo: UserRepo, tmp_path: Path) -> None:
    full = git(repo.path, "rev-parse", "main~3")
    (tmp_path / "skip.txt").write_text(f"\ufeff# broken builds\n\n  {full}  # the first one\r\nmain~2..main~1\n")
    skipped = {}
    for args in ((), ("--skip", "main~2"), ("--skip-file", str(tmp_path / "skip.txt"))):
        status, out, err = run("diff", "--good", "old", *args, *(("--skip", "main~2") if "--skip-file" in args else ()))
        assert status == 0, err
        skipped[args[:1]] = re.findall(r"step (\d) \(skipped\)", out)
    assert skipped == {(): [], ("--skip",): ["2"], ("--skip-file",): ["1", "2", "3"]}


def test_diff_lists_the_changes_oldest_first(run: Run, tmp_path: Path) -> None:
    status, out, _ = run("diff", "--good", "old")
    titles = re.findall(r"step \d", out)
    assert status == 0 and titles == ["step 1", "step 2", "step 3", "step 4"] and "4 commits" in out
    (tmp_path / "other.yaml").write_text("lr: 9\n")
    status, out, _ = run("diff", "--good", "main", "--good-config", "conf.yaml", "--bad-config", str(tmp_path / "other.yaml"))
    assert status == 0 and "1 config key" in out and re.search(r"1 +lr +4 -> 9", out)


def test_check_of_equal_configs_runs_nothing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "same.json").write_text(json.dumps({"lr": 4}))
    status, out, _ = run("check", "conf.yaml", str(tmp_path / "same.json"), "--", "python", "train.py", "{config}")
    assert status == 0 and "nothing was run" in out


def test_json_that_is_a_folder_is_bad_input(run: Run, tmp_path: Path) -> None:
    status, _, err = run(*BOTH, "--json", str(tmp_path), *TRAINING)
    assert status == 2 and "is a directory" in err


def test_single_probe_is_no_bisection(run: Run, repo: UserRepo, tmp_path: Path) -> None:
    store = open_store(tmp_path / "home")
    question = replace(question_of(repo.head, repo.head), kind="probe", repo=str(repo.path))
    name = store.create(question.to_json(), title="a probe")
    store.close()
    for command in ("resume", "status", "report"):
        status, _, err = run(command, name)
        assert status == 2 and f"{name} is a probe, not a bisection" in err
        status, _, err = run(command)
        assert status == 2 and "there is no bisection 'last'" in err
    assert run("log")[0] == 0 and name in run("list")[1]
