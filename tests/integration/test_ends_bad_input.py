"""Ends that cannot be what the options say: each is refused with what, why and what to do, and no secret is printed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from bisect_train.changes.axes import EnvAxis
from bisect_train.cli.main import group
from bisect_train.core.errors import InputError
from bisect_train.core.question import EndState
from tests.support.git_repos import UserRepo


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UserRepo:
    """A repository of one commit, which is the current folder."""
    repo = UserRepo.create(tmp_path / "user")
    repo.commit({"train.py": "print(1)\n"})
    monkeypatch.setenv("BISECT_TRAIN_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(repo.path)
    return repo


def _diff(*args: str) -> str:
    """Return what `diff` prints about one commit with two ends."""
    result = CliRunner().invoke(group, ["diff", "--good", "HEAD", "--bad", "HEAD", *args], standalone_mode=False)
    if result.exception:
        raise result.exception
    return result.output


def _refused(*args: str) -> str:
    """Return message and hint of an input error."""
    with pytest.raises(InputError) as caught:
        _diff(*args)
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
