"""Package files and command lines that no tool writes: each was found by fuzzing, and is refused or read, never a crash."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bisect_train.changes.arguments import diff_commands
from bisect_train.changes.packages import Pin, diff_packages, read_packages, read_packages_text
from bisect_train.changes.packages.pins import name_of_reference
from bisect_train.changes.packages.sources import local_path
from bisect_train.core.errors import InputError


def read(name: str, text: str) -> dict[str, Pin]:
    return read_packages_text(name, text, environment={"sys_platform": "linux", "platform_machine": "x86_64"})


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("pyproject.toml", "project = [1]\n", "[project]: '[1]': this must be a table"),
        ("pyproject.toml", "project = {dynamic = 3}\n", "[project], dynamic: '3': this must be a list"),
        ("uv.lock", 'package = [{name = "a", dependencies = 1.5}]\n', "package a, dependencies: '1.5': this must be a list"),
        ("uv.lock", 'package = [{name = "a", dependencies = ["b"]}]\n', "package a, dependencies 1: 'b': this must be a table"),
        ("uv.lock", 'package = [{name = "a", source = "git"}]\n', "package a, source"),
        ("uv.lock", 'package = [{name = "a", resolution-markers = 1}]\n', "package a, resolution-markers"),
        ("uv.lock", 'package = [{name = "a", optional-dependencies = {x = [1]}}]\n', "optional-dependencies, x 1"),
        ("poetry.lock", 'package = [{name = "a", version = "1", dependencies = 1}]\n', "package a, dependencies"),
        ("poetry.lock", 'package = [{name = "a", version = "1", source = "x"}]\n', "package a, source"),
        ("poetry.lock", 'package = [{name = "a", version = "1", markers = 1}]\n', "this must be a text or a table"),
        ("poetry.lock", 'package = [{name = "a", version = "x y"}]\n', "package a: '===x y': no version specifier"),
        ("Pipfile.lock", '{"default": {"a": {"extras": [{}]}}}', "package a, extras 1"),
        ("pylock.toml", 'packages = [{name = "a", vcs = "x"}]\n', "package a, vcs"),
        ("pylock.toml", 'packages = [{name = "a", version = "1", dependencies = ["b"]}]\n', "package a, dependencies 1"),
        ("conda-lock.yml", '{"package": [{"name": "a", "platform": "linux-64", "dependencies": 1}]}', "a, dependencies"),
        ("environment.yml", '{"dependencies": ["a==x y"]}', "no version specifier"),
        ("requirements.txt", f"a==1; python_version < '{'9' * 5000}'\n", "no environment marker"),
    ],
)  # fmt: skip
def test_value_of_another_kind_is_told_with_its_place(name: str, text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read(name, text)
    assert said in caught.value.message and caught.value.hint


def test_dependency_without_a_name_is_passed_over() -> None:
    pins = read("uv.lock", 'package = [{name = "a", version = "1", dependencies = [{marker = ""}, {name = "b"}]}]\n')
    assert pins["a"].needs == ("b",)


def test_version_of_thousands_of_digits_is_compared_as_text() -> None:
    text = json.dumps({"default": {"a": {"version": f"=={'9' * 5000}"}}})
    assert read("Pipfile.lock", text)["a"].version
    pins = [read("pyproject.toml", f'[project]\ndependencies = ["a>{digit * 5000}"]\n') for digit in "998"]
    assert not diff_packages(pins[0], pins[1]).changes and diff_packages(pins[0], pins[2]).changes


@pytest.mark.parametrize("address", ["http://[::", "git+https://[x", "//[a]b"])
def test_address_with_a_broken_host_has_no_name_and_is_no_path(address: str) -> None:
    assert name_of_reference(address) == "" and local_path(address) is None
    with pytest.raises(InputError, match="name is not known"):
        read("requirements.txt", f"-e {address}\n")
    assert read("requirements.txt", "x @ https://[::\n")["x"].url == "https://[::"


def test_file_beside_it_whose_name_no_disk_takes_is_told(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    for line, said in (("-r a\0b", "must lie in the folder"), (f"-r {'x' * 400}", "cannot read"), (f"-e ./{'x' * 400}[[", "")):
        path.write_text(f"{line}\n")
        if said:
            with pytest.raises(InputError, match=said):
                read_packages(path)
        else:
            assert len(read_packages(path)) <= 1


def test_comment_that_nearly_names_a_package_does_not_take_for_ever() -> None:
    text = "# Editable install " + "(a==" * 400_000 + "\n-e ../nowhere\n"
    assert list(read("requirements.txt", text)) == ["nowhere"]


@pytest.mark.parametrize("good", [["--=", "8"], ["-=1", "x"], ["---=a"], ["--", "--=b"]])
def test_word_of_dashes_and_an_equals_sign_is_not_what_ends_the_options(good: list[str]) -> None:
    for bad in ([], ["train.py"], ["--", "8"]):
        diff = diff_commands(good, bad)
        assert diff.render(()) == tuple(good) and diff.render(diff.changes) == tuple(bad)
