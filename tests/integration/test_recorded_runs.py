"""`--good-run` and `--bad-run`: what folders of recorded runs say, and the question that two of them make."""

from __future__ import annotations

import json
import shutil
import types
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from click.testing import CliRunner

from bisect_train.changes.run_folder import RunFolder, read_run_folder
from bisect_train.changes.space import ChangeSpace
from bisect_train.cli import run_command
from bisect_train.cli.main import group
from bisect_train.core.changes import ChangeKind
from bisect_train.core.errors import InputError
from bisect_train.core.question import Question, Range
from tests.support.git_repos import UserRepo
from tests.support.log_files import DATA, WANDB_FILE

SHA = "e1b5e9bb7d15ea568546d5b73d417eb44bcfc7d7"


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def wandb_run(folder: Path, commit: str, *, lr: float = 0.1, args: tuple[str, ...] = (), **more: str) -> Path:
    """Write the folder of a run as W&B syncs it."""
    config = f"wandb_version: 1\n\n_wandb:\n  desc: null\n  value:\n    cli_version: 0.16.0\nlr:\n  desc: null\n  value: {lr}\n"
    told = {"program": "/home/ada/nano/train.py", "codePath": "train.py", "args": list(args), "git": {"commit": commit}}
    return write(folder, {"files/config.yaml": config, "files/wandb-metadata.json": json.dumps(told), **more})


def parts_of(run: RunFolder) -> tuple[Any, ...]:
    return run.kind, run.commit, run.config and yaml.safe_load(run.config[1]), run.command


def test_wandb_folder_is_read_as_it_was_synced(tmp_path: Path) -> None:
    folder = wandb_run(
        tmp_path / "run", SHA, args=("--lr", "0.1"), **{"files/requirements.txt": "a==1\n", "files/diff.patch": "x"}
    )
    run = read_run_folder(folder)
    assert parts_of(run) == ("wandb", SHA, {"lr": 0.1}, ("python", "train.py", "--lr", "0.1"))
    assert (run.requirements, run.patch, run.missing) == ("a==1\n", folder / "files" / "diff.patch", ())
    assert read_run_folder(folder / "files").commit == SHA


def test_wandb_offline_run_is_read_from_its_records(tmp_path: Path) -> None:
    shutil.copy(DATA / WANDB_FILE, tmp_path / WANDB_FILE)
    run = read_run_folder(tmp_path)
    wanted = ("wandb", SHA, {"lr": 0.1, "model": {"depth": 2}}, ("python", "train.py", "--lr", "0.1"))
    assert parts_of(run) == wanted
    assert [part for part, _ in run.missing] == ["requirements", "patch"] and run.why_not("patch")
    data = (DATA / WANDB_FILE).read_bytes()
    for size in range(0, 1200, 7):
        (tmp_path / WANDB_FILE).write_bytes(data[:size])
        found = parts_of(read_run_folder(tmp_path))
        assert all(item in (None, whole) for item, whole in zip(found[1:], wanted[1:], strict=True)), size


def test_mlflow_folder_is_read(tmp_path: Path) -> None:
    tags = {"tags/mlflow.source.git.commit": SHA, "tags/mlflow.source.name": "train.py"}
    params = {"params/lr": "0.1", "params/model/depth": "2", "params/name": "big: one", "params/eps": "1e-05"}
    run = read_run_folder(write(tmp_path, {"meta.yaml": "", **tags, **params}))
    assert parts_of(run) == ("mlflow", SHA, {"lr": 0.1, "model/depth": 2, "name": {"big": "one"}, "eps": "1e-05"}, None)
    assert "MLflow keeps the program's name (train.py), not its arguments" in run.why_not("command")


def test_hydra_folder_is_read(tmp_path: Path) -> None:
    job = "hydra:\n  job:\n    name: train\n    config_name: base\n"
    files = {".hydra/config.yaml": f"lr: 0.1\ngit_hash: {SHA}\n", ".hydra/overrides.yaml": "- lr=0.1\n- +x=a b\n"}
    run = read_run_folder(write(tmp_path, {**files, ".hydra/hydra.yaml": job}))
    assert parts_of(run) == ("hydra", SHA, {"lr": 0.1, "git_hash": SHA}, None)
    assert run.hydra == ("base", "lr=0.1", "+x=a b") and "(train)" in run.why_not("command")
    assert read_run_folder(tmp_path / ".hydra").hydra == run.hydra


def test_kept_probe_and_report_are_read(tmp_path: Path) -> None:
    kept = write(tmp_path / "kept", {"checkout/.git/HEAD": f"{SHA}\n", "program.log": ""})
    assert (read_run_folder(kept).kind, read_run_folder(kept).commit) == ("kept", SHA)
    ends = {"good": {"revision": SHA}, "bad": {"revision": "f" * 40}}
    report = write(tmp_path / "report", {"report.json": json.dumps({"ends": ends})})
    assert [read_run_folder(report, end=end).commit for end in ends] == [SHA, "f" * 40]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"a.txt": ""}, "this is no folder of a recorded run"),
        ({"files/wandb-metadata.json": "{"}, "this is no metadata of a run"),
        ({"files/wandb-metadata.json": "[]"}, "this is no metadata of a run"),
        ({"files/config.yaml": "a: [1"}, "this is no YAML"),
        ({"files/config.yaml": "[1]"}, "this YAML holds no keys and values"),
        ({"report.json": "{}"}, "this is no report of a bisection"),
    ],
)
def test_folder_that_is_none_of_a_run_is_refused(tmp_path: Path, files: dict[str, str], said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        read_run_folder(write(tmp_path, files))
    assert caught.value.hint and str(tmp_path) in caught.value.message


def test_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such folder"):
        read_run_folder(tmp_path / "no")


# ---- the question -----------------------------------------------------------------------------------------------------


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UserRepo:
    """A repository of three commits, which is the current folder."""
    repo = UserRepo.create(tmp_path / "user")
    for level in (1, 2, 3):
        repo.commit({"train.py": f"print({level})\n"})
    monkeypatch.setenv("BISECT_TRAIN_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(repo.path)
    return repo


class Asked(NamedTuple):
    """What was asked: the question, the titles of its changes, and what was printed."""

    question: Question
    changes: list[str]
    printed: str


def ask(*args: str) -> Asked:
    """Return what a command would run."""
    found: list[tuple[Question, ChangeSpace]] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run_command, "print_dry_run", lambda question, space, *rest: found.append((question, space)) or 0)
        result = CliRunner().invoke(group, ["run", "--dry-run", *args], standalone_mode=False)
    if result.exception:
        raise result.exception
    ((question, space),) = found
    titles = [change.title for change in space.changes if change.kind is not ChangeKind.COMMIT]
    return Asked(question, titles, " ".join(result.output.split()))


def test_two_runs_are_a_question(user: UserRepo, tmp_path: Path) -> None:
    commits = [user.git("rev-parse", f"HEAD~{idx}") for idx in (2, 1)]
    pins = [{"files/requirements.txt": f"toyopt=={number}.0\nsame==1\n"} for number in (1, 2)]
    good = wandb_run(tmp_path / "g", commits[0], args=("--lr", "0.1"), **pins[0])
    bad = wandb_run(tmp_path / "b", commits[1], args=("--lr", "0.2"), **pins[1])
    said = ask("--good-run", str(good), "--bad-run", str(bad))
    assert said.question.range == Range((commits[0],), commits[1])
    assert said.question.command == ("python", "train.py", "--lr", "0.1")
    assert sorted(said.changes) == ["--lr: 0.1 -> 0.2", "toyopt: 1.0 -> 2.0"]
    assert "configs are not compared: the command has no {config}" in said.printed


def test_configs_of_runs_are_changes_where_the_command_takes_one(user: UserRepo, tmp_path: Path) -> None:
    good, bad = (wandb_run(tmp_path / name, user.head, lr=lr) for name, lr in (("g", 0.1), ("b", 0.2)))
    said = ask("--good-run", str(good), "--bad-run", str(bad), "--", "python", "train.py", "{config}")
    assert said.changes == ["lr: 0.1 -> 0.2"]
    ends = (said.question.good_config, said.question.bad_config)
    assert [end and end.path for end in ends] == [f"config of {good}", f"config of {bad}"]
    with pytest.raises(InputError, match="are the same commit"):
        ask("--good-run", str(good), "--bad-run", str(bad), "--", "python", "train.py")


def test_what_is_given_wins_over_a_run(user: UserRepo, tmp_path: Path) -> None:
    bad = wandb_run(tmp_path / "b", user.git("rev-parse", "HEAD~1"))
    said = ask("--good", "HEAD~2", "--bad-run", str(bad))
    assert said.question.range == Range((user.git("rev-parse", "HEAD~2"),), user.git("rev-parse", "HEAD~1"))
    said = ask("--good", "HEAD~2", "--bad", "HEAD", "--bad-run", str(bad), "--", "python", "train.py")
    assert said.question.range.bad == user.head


def test_hydra_runs_are_compositions_where_the_recipe_names_their_directory(user: UserRepo, tmp_path: Path) -> None:
    user.commit({"conf/base.yaml": "lr: 0.1\n", "bisect-train.yaml": "config: {hydra: conf}\n"})
    runs = []
    for lr in (0.1, 0.2):
        job = {".hydra/hydra.yaml": "hydra:\n  job:\n    config_name: base\n", ".hydra/overrides.yaml": f"- lr={lr}\n"}
        runs.append(str(write(tmp_path / f"run{lr}", {**job, ".hydra/config.yaml": f"lr: {lr}\ncommit: {user.head}\n"})))
    said = ask("--good-run", runs[0], "--bad-run", runs[1], "--", "python", "train.py", "{overrides}")
    assert said.question.good_state.hydra == ("base", "lr=0.1") and said.changes == ["lr: 0.1 -> 0.2"]


@pytest.mark.parametrize("is_at_both", [False, True])
def test_uncommitted_patch_goes_over_all_states_or_is_refused(user: UserRepo, tmp_path: Path, is_at_both: bool) -> None:
    patch = "diff --git a/new.txt b/new.txt\nnew file mode 100644\n--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+x\n"
    commits = [user.git("rev-parse", f"HEAD~{idx}") for idx in (2, 0)]
    good = wandb_run(tmp_path / "g", commits[0], **{"files/diff.patch": patch})
    bad = wandb_run(tmp_path / "b", commits[1], **({"files/diff.patch": patch} if is_at_both else {}))
    if is_at_both:
        (fixup,) = ask("--good-run", str(good), "--bad-run", str(bad)).question.fixups
        assert (fixup.path, fixup.text) == (str(good / "files" / "diff.patch"), patch)
        return
    with pytest.raises(InputError, match="the good run had uncommitted changes") as caught:
        ask("--good-run", str(good), "--bad-run", str(bad))
    assert "git apply" in caught.value.hint


def test_run_without_its_commit_says_what_to_give(user: UserRepo, tmp_path: Path) -> None:
    run = wandb_run(tmp_path / "g", "")
    with pytest.raises(InputError, match="its commit is not known: the run was not in a git repository") as caught:
        ask("--good-run", str(run), "--", "python", "train.py")
    assert "--good REV" in caught.value.hint
    with pytest.raises(InputError, match="no good end was given"):
        ask("--", "python", "train.py")


# ---- a run on a server ------------------------------------------------------------------------------------------------


class FakeWandb(types.ModuleType):
    """The public API of W&B as far as it is used, with one run."""

    def __init__(self, folder: Path) -> None:
        super().__init__("wandb")
        self._folder = folder

    def Api(self) -> FakeWandb:
        return self

    def run(self, path: str) -> FakeWandb:
        if path != "ada/nano/ab12":
            raise ValueError(f"could not find run {path}")
        return self

    def files(self, names: list[str]) -> list[Any]:
        found = [path for path in sorted(self._folder.iterdir()) if path.name in names]
        return [
            types.SimpleNamespace(
                name=path.name, download=lambda root, replace, path=path: shutil.copy(path, Path(root) / path.name)
            )
            for path in found
        ]


def test_run_on_a_server_is_fetched(user: UserRepo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = wandb_run(tmp_path / "g", user.git("rev-parse", "HEAD~2"))
    monkeypatch.setitem(__import__("sys").modules, "wandb", FakeWandb(folder / "files"))
    monkeypatch.setenv("WANDB_API_KEY", "made-up")
    assert ask("--good-run", "wandb:ada/nano/ab12").question.range.goods == (user.git("rev-parse", "HEAD~2"),)
    with pytest.raises(InputError, match="cannot be fetched: ValueError: could not find run ada/nano/no"):
        ask("--good-run", "wandb:ada/nano/no")
    with pytest.raises(InputError, match="is no run"):
        ask("--good-run", "wandb:ada/nano")
    monkeypatch.delenv("WANDB_API_KEY")
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(InputError, match="there is no key"):
        ask("--good-run", "wandb:ada/nano/ab12")
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    with pytest.raises(InputError, match="wandb is not installed"):
        ask("--good-run", "wandb:ada/nano/ab12")
