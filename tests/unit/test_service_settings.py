"""What the operator of a service decides, and what is refused before it listens."""

from __future__ import annotations

from pathlib import Path

import pytest

from bisect_train.cli.serving_settings import read_tokens, settings_of
from bisect_train.core.errors import InputError
from bisect_train.service.auth import digest_token
from bisect_train.service.settings import Settings, is_loopback, refuse_open_door
from tests.support.git_repos import UserRepo

GIVEN = {
    "repos": (), "recipes": (), "token_file": None, "host": "127.0.0.1", "port": 1, "allow_commands": False,
    "max_running": 2, "address": "", "cpus": None, "python": None, "lease_s": 30.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("host", "is_local"),
    [("127.0.0.1", True), ("127.8.0.9", True), ("::1", True), ("[::1]", True), ("LocalHost", True), ("0.0.0.0", False),
     ("::", False), ("10.0.0.1", False), ("example.org", False), ("", False), ("127.0.0.1.example.org", False)],
)  # fmt: skip
def test_hosts_that_only_this_machine_reaches_are_told_apart(host: str, is_local: bool) -> None:
    assert is_loopback(host) is is_local


def test_service_without_a_token_listens_on_this_machine_alone(tmp_path: Path) -> None:
    refuse_open_door(Settings(tmp_path), has_users=False)
    with pytest.raises(InputError, match="no token is set") as caught:
        refuse_open_door(Settings(tmp_path, host="0.0.0.0"), has_users=False)
    assert caught.value.exit_status == 2 and "serve user add" in caught.value.hint
    refuse_open_door(Settings(tmp_path, host="0.0.0.0"), has_users=True)
    refuse_open_door(Settings(tmp_path, host="0.0.0.0", tokens=("digest",)), has_users=False)


def test_names_are_looked_up_on_the_lists_alone(tmp_path: Path) -> None:
    settings = Settings(tmp_path, repositories=(("a", tmp_path),), recipes=(("r", tmp_path / "r.yaml"),))
    assert settings.repository("a") == tmp_path and settings.recipe("r") == tmp_path / "r.yaml"
    for name in ("b", "", "../a", str(tmp_path), "a/"):
        with pytest.raises(InputError, match="no repository of this name"):
            settings.repository(name)
        with pytest.raises(InputError, match="no recipe of this name"):
            settings.recipe(name)


def test_options_name_repositories_and_recipes(tmp_path: Path) -> None:
    repo = UserRepo.create(tmp_path / "my repo")
    recipe = tmp_path / "nightly.yaml"
    recipe.write_text("command: [python, t.py]\n")
    given = {**GIVEN, "repos": (str(repo.path), f"gpt={repo.path}"), "recipes": (str(recipe), "pl=lightning")}
    made = settings_of(given, home=tmp_path / "home")
    assert made.repositories == (("my-repo", repo.path), ("gpt", repo.path))
    assert [name for name, _ in made.recipes] == ["nightly", "pl"] and all(path.is_file() for _, path in made.recipes)


def test_options_that_cannot_be_used_are_told(tmp_path: Path) -> None:
    repo, other = UserRepo.create(tmp_path / "one"), UserRepo.create(tmp_path / "two")
    for given, said in (
        ({"repos": (str(tmp_path / "no"),)}, "no"),
        ({"repos": (f"a={repo.path}", f"a={other.path}")}, "two have the name a"),
        ({"repos": (f"../a={repo.path}",)}, "is no name"),
        ({"repos": (str(repo.path),), "recipes": (str(tmp_path / "gone.yaml"),)}, "gone.yaml"),
    ):
        with pytest.raises(InputError, match=said):
            settings_of({**GIVEN, **given}, home=tmp_path / "home")


def test_token_file_has_long_tokens_one_a_line(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    token = "x" * 40
    file.write_text(f"# of the operator\n{token}\n\n")
    assert read_tokens(file) == (digest_token(token),) and read_tokens(None) == ()
    for text, said in (("", "no token"), ("# only\n", "no token"), (f"{token}\nshort\n", "fewer than 32")):
        file.write_text(text)
        with pytest.raises(InputError, match=said):
            read_tokens(file)
    with pytest.raises(InputError, match="cannot be read"):
        read_tokens(tmp_path / "gone")
