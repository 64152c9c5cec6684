"""Ends that cannot be what the options say: each is refused with what, why and what to do, and no secret is printed."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from bisect_train.changes.axes import EnvAxis
from bisect_train.changes.data import digest_path
from bisect_train.changes.packages.clones import clone_of
from bisect_train.changes.packages.repo import is_repository
from bisect_train.cli.driving import refuse_changed_data
from bisect_train.cli.main import group
from bisect_train.core.changes import DataLink
from bisect_train.core.errors import InputError
from bisect_train.core.question import DataEnd, EndState
from tests.support.git_repos import UserRepo, question_of

TWO = ("--bad-ranks", "2")
"""Something in which the ends differ."""


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UserRepo:
    """A repository of one commit, which is the current folder."""
    repo = UserRepo.create(tmp_path / "user")
    repo.commit({"train.py": "print(1)\n"})
    monkeypatch.setenv("BISECT_TRAIN_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(repo.path)
    return repo


def _diff(*args: str, command: str = "diff") -> str:
    """Return what `diff` prints about one commit with two ends."""
    result = CliRunner().invoke(group, [command, "--good", "HEAD", "--bad", "HEAD", *args], standalone_mode=False)
    if result.exception:
        raise result.exception
    return result.output


def _refused(*args: str, command: str = "diff") -> str:
    """Return message and hint of an input error."""
    with pytest.raises(InputError) as caught:
        _diff(*args, command=command)
    assert caught.value.hint
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("A=1\n=3\n", "line 2 is not KEY=VALUE"),
        ("A=1\nfoo bar=3\n", "line 2 is not KEY=VALUE"),
        ('A="never closed\nB=1\n', "line 1 is not KEY=VALUE"),
        ("A\n", "A has no value"),
        ("'A=B'=1\n", "'A=B' is no name of an environment variable"),
        ("A=x\0y\n", "the value of A holds a NUL character"),
        (f"A={'x' * 2**17}\n", "have 131074 bytes"),
        ("PYTHONPATH=/x\n", "PYTHONPATH belongs to the tool"),
    ],
)
def test_a_variable_file_with_a_line_that_cannot_be_used_is_refused(user: UserRepo, text: str, said: str) -> None:
    (user.path.parent / "bad.env").write_text(text)
    assert said in _refused("--bad-env", "../bad.env")


def test_secrets_are_not_printed_and_other_variables_are(user: UserRepo) -> None:
    lines = ["HF_TOKEN=hunter2", "wandb_api_key=hunter2", "URL=https://me:hunter2@host/x", "TOKENIZERS_PARALLELISM=yes", "E="]
    (user.path.parent / "bad.env").write_text("\n".join(lines))
    out = _diff("--bad-env", "../bad.env", "--json", "../changes.json")
    for shown in (out, (user.path.parent / "changes.json").read_text()):
        assert "hunter2" not in shown
        assert "://(hidden)@host/x" in shown and "(empty)" in shown and "-> yes" in shown and "-> (hidden)" in shown


def test_a_secret_that_is_taken_away_is_told_and_hidden() -> None:
    axis = EnvAxis(EndState(env=(("DB_PASSWORD", "hunter2"),)), EndState(), common=())
    assert [change.title for change in axis.changes] == ["DB_PASSWORD: (hidden) -> not set"]


def test_an_empty_or_lonely_option_is_told_by_its_name(user: UserRepo) -> None:
    assert "--bad-command is empty" in _refused("--bad-command", "", "--", "python", "train.py")
    assert "belong together" in _refused("--good-hydra", "config", "--", "python", "train.py", "{overrides}")


def test_a_program_that_is_no_python_is_refused_as_interpreter(user: UserRepo) -> None:
    said = _refused("--python", sys.executable, "--bad-python", "/bin/echo", "--", "python", "train.py")
    assert "/bin/echo is no Python interpreter" in said


def test_an_image_of_one_end_only_is_refused(user: UserRepo) -> None:
    Path("../recipe.yaml").write_text('launcher: [apptainer, exec, "{image}"]\n')
    recipe = ["--recipe", "../recipe.yaml"]
    assert "--bad-image does not name one" in _refused(*recipe, "--good-image", "a")
    assert "--good-image does not name one" in _refused(*recipe, "--good-image", "", "--bad-image", "b")
    assert "a -> b" in _diff(*recipe, "--good-image", "a", "--bad-image", "b")


def test_data_that_are_missing_or_lie_in_each_other_are_refused_before_a_run(user: UserRepo) -> None:
    for name in ("v1", "v2"):
        (user.path.parent / name).mkdir()
        (user.path.parent / name / "x").write_text(name)
    said = _refused("--good-data", "c=../v1", "--bad-data", "c=../nope")
    assert "nope: there is no such file or folder" in said and "--bad-data" in said
    nested = ["--good-data", "c=../v1", "--bad-data", "c=../v2", "--good-data", "c/x=../v1", "--bad-data", "c/x=../v2"]
    assert "two links share a place in the checkout: c and c/x" in _refused(*nested)
    assert "c-x" in _diff(*[text.replace("c/x", "c-x") for text in nested])


def test_wheels_that_are_missing_are_told_by_the_option(user: UserRepo) -> None:
    for name, version in (("old", "1.0"), ("new", "2.0")):
        (user.path.parent / f"{name}.txt").write_text(f"numpy=={version}\n")
    said = _refused("--good-env", "../old.txt", "--bad-env", "../new.txt", "--find-links", "../nope")
    assert "nope: there is no such file or folder" in said and "--find-links" in said


def test_variables_may_differ_where_the_environment_is_only_inherited(user: UserRepo) -> None:
    Path("../recipe.yaml").write_text("environment: {mode: inherit}\n")
    Path("../bad.env").write_text("A=1\n")
    assert "not set -> 1" in _diff("--recipe", "../recipe.yaml", "--bad-env", "../bad.env")


@pytest.mark.parametrize("target", ["train.py", "train.py/x", "sub", "sub/kept.txt"])
def test_data_at_a_place_that_git_tracks_are_refused_before_a_run(user: UserRepo, target: str) -> None:
    user.commit({"sub/kept.txt": "x"})
    for name in ("v1", "v2"):
        (user.path.parent / name).write_text(name)
    tracked = "train.py" if target == "train.py/x" else target
    said = _refused("--good-data", f"{target}=../v1", "--bad-data", f"{target}=../v2")
    assert f"data cannot be linked at {target}: commit {user.head[:12]} tracks {tracked}" in said
    Path("../recipe.yaml").write_text(f"data: {{link: [{{from: ../v1, to: {target}}}]}}\n")
    assert f"data cannot be linked at {target}" in _refused("--recipe", "../recipe.yaml", *TWO)
    assert "sub/free" in _diff("--good-data", "sub/free=../v1", "--bad-data", "sub/free=../v2")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nosuchprogram train.py", "command not found: 'nosuchprogram'"),
        ("./nosuch.sh", "command not found: './nosuch.sh'"),
        ("/no/such/program", "command not found: '/no/such/program'"),
        ("python nosuch.py", "no such script: 'nosuch.py' is not tracked"),
        ("bash nosuch.sh", "no such script: 'nosuch.sh' is not tracked"),
        ("./run.sh", "the program './run.sh' is not tracked by git"),
    ],
)
def test_bad_command_that_cannot_be_started_is_refused_by_its_option(user: UserRepo, text: str, said: str) -> None:
    Path("run.sh").write_text("python train.py\n")
    refused = _refused("--bad-command", text, "--dry-run", "--", "python", "train.py", command="run")
    assert said in refused and ("--bad-command" in refused or "git add run.sh" in refused)


def test_launcher_that_is_not_there_is_refused_by_the_recipe(user: UserRepo) -> None:
    Path("../recipe.yaml").write_text("launcher: [nosuchlauncher, exec]\n")
    said = _refused("--recipe", "../recipe.yaml", "--bad-ranks", "2", "--dry-run", "--", "python", "train.py", command="run")
    assert "command not found: 'nosuchlauncher'" in said and "`launcher:` in ../recipe.yaml" in said


@pytest.mark.parametrize("text", ["banana", "ftp://host/simple", "https://", "file:///no/such", "../nope"])
def test_index_that_is_no_address_and_no_folder_is_refused(user: UserRepo, text: str) -> None:
    assert f"--index-url {text}: " in _refused("--index-url", text, *TWO)


@pytest.mark.parametrize("text", ["none", "https://me:s3cret@host/simple", "../wheels", "file:///tmp"])
def test_index_that_is_an_address_or_a_folder_is_taken(user: UserRepo, text: str) -> None:
    Path("../wheels").mkdir()
    _diff("--index-url", text, *TWO)


def test_index_with_a_login_is_refused_without_it(user: UserRepo) -> None:
    said = _refused("--index-url", "htp://me:s3cret@host/simple", *TWO)
    assert "htp://(hidden)@host/simple" in said and "s3cret" not in said


def test_package_repository_that_is_none_is_refused(user: UserRepo) -> None:
    for folder in ("../plain", "inside"):
        Path(folder).mkdir()
        assert "is no git repository" in _refused("--package-repo", f"x={folder}", *TWO)
    said = _refused("--package-repo", f"x=file://me:s3cret@localhost{Path.cwd()}/none.git", *TWO)
    assert "cannot be cloned" in said and "s3cret" not in said
    assert "is no address of a repository" in _refused("--package-repo", "x=ext::sh -c 'touch ../hit'://x", *TWO)
    assert not Path("../hit").exists()


def test_package_repository_given_by_address_is_cloned_once_and_brought_up_to_date(user: UserRepo, tmp_path: Path) -> None:
    address, home = f"file://{user.path}", tmp_path / "home"
    clone = clone_of(address, home)
    assert is_repository(clone) and clone.is_relative_to(home)
    commit = user.commit({"more.txt": "1\n"})
    assert clone_of(address, home) == clone
    assert subprocess.run(["git", "-C", clone, "cat-file", "-e", commit], check=False).returncode == 0
    user.path.rename(tmp_path / "away")
    assert clone_of(address, home) == clone, "what was cloned is there though the address does not answer"


def test_package_repository_of_a_package_that_does_not_differ_is_noted(user: UserRepo) -> None:
    for name, version in (("old", "1.0"), ("new", "2.0")):
        Path(f"../{name}.txt").write_text(f"numpy=={version}\nsix==1.0\n")
    ends = ["--good-env", "../old.txt", "--bad-env", "../new.txt", "--index-url", "none"]
    said = " ".join(_diff(*ends, "--package-repo", f"six={user.path}").split())
    assert "--package-repo six: this package does not differ between the ends; those that do: numpy" in said
    assert "--package-repo" not in _diff(*ends, "--package-repo", f"NumPy={user.path}")


def test_interpreters_are_told_by_their_own_options(user: UserRepo) -> None:
    for option in ("--python", "--bad-python"):
        said = _refused(option, "/no/python", *TWO)
        assert "no such interpreter" in said and f"{option} takes" in said
    assert "--bad-python takes" in _refused("--bad-python", "/bin/echo", *TWO)


def test_data_that_are_gone_later_are_told_with_what_brings_them_back(user: UserRepo) -> None:
    source = user.path.parent / "v2"
    source.write_text("two")
    state = EndState(data=(DataEnd(DataLink(str(source), "corpus"), digest_path(source)),))
    question = replace(question_of(user.head, user.head), bad_state=state)
    refuse_changed_data(question, "since this bisection was asked")
    source.unlink()
    with pytest.raises(InputError) as caught:
        refuse_changed_data(question, "since this bisection was asked")
    assert "v2 (linked at corpus) is gone since this bisection was asked" in str(caught.value)
    assert "put the same data there again" in caught.value.hint and "bisect-train resume" in caught.value.hint


def test_folders_given_on_the_command_line_start_at_the_current_folder_and_those_of_a_recipe_at_the_repository(
    user: UserRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, version in (("old", "1.0"), ("new", "2.0")):
        Path(f"../{name}.txt").write_text(f"numpy=={version}\n")
    (user.path / "inside").mkdir()
    (user.path.parent / "elsewhere/wheels").mkdir(parents=True)
    monkeypatch.chdir(user.path.parent / "elsewhere")
    ends = ["--repo", str(user.path), "--good-env", "../old.txt", "--bad-env", "../new.txt"]
    Path("recipe.yaml").write_text("environment: {find_links: [inside]}\n")
    _diff(*ends, "--recipe", "recipe.yaml", "--find-links", "wheels")
    assert "inside: there is no such file" in _refused(*ends, "--find-links", "inside")


def test_hydra_errors_name_the_folder_as_the_repository_does(user: UserRepo) -> None:
    pytest.importorskip("hydra", reason="Hydra is an optional extra")
    user.commit({"conf/train.yaml": "defaults: [optimizer: sgd]\n", "conf/optimizer/sgd.yaml": "lr: 1\n"})
    Path("../recipe.yaml").write_text("config: {hydra: conf}\n")
    for bad in ("train optimizer=nope", "nope", "train nothing.there=1"):
        said = _refused(
            "--recipe", "../recipe.yaml", "--good-hydra", "train", "--bad-hydra", bad, "--", "python", "train.py", "{overrides}"
        )
        assert f"conf of commit {user.head[:12]}: Hydra cannot compose" in said
        assert str(user.path.parent / "home") not in said
