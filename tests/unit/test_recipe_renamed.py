"""Keys of recipes that were renamed: read with a warning for a while, then refused, always with the new name."""

from __future__ import annotations

from pathlib import Path

import pytest

from bisect_train.cli import finding
from bisect_train.cli.asked import Asked
from bisect_train.core.errors import RecipeError
from bisect_train.recipe import load, load_recipe
from bisect_train.recipe.renamed import RenamedKey, follow_renames

TABLE = (
    RenamedKey("run", "command", since="0.2", removed="0.4"),
    RenamedKey("shrink.overrides", "shrink.set", since="0.2", removed="0.4"),
    RenamedKey("timeout", "resources.timeout_s", since="0.2", removed="0.4"),
    RenamedKey("colour", "", since="0.2", removed="0.4"),
)


@pytest.fixture
def renamed(monkeypatch: pytest.MonkeyPatch) -> None:
    def follow(path, data, lines, *, version):  # type: ignore[no-untyped-def]
        return follow_renames(path, data, lines, version="0.3", table=TABLE)

    monkeypatch.setattr(load, "follow_renames", follow)


def write(folder: Path, text: str, name: str = "r.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.usefixtures("renamed")
def test_old_name_is_read_with_one_warning_that_names_the_new_one(tmp_path: Path) -> None:
    path = write(
        tmp_path, 'run: [python, t.py, "{overrides}"]\nconfig: {override: "{key}={value}"}\nshrink: {overrides: {n: 1}}\n'
    )
    recipe = load_recipe(path)
    assert recipe.command[:2] == ("python", "t.py") and recipe.shrink.set == (("n", "1"),)
    assert len(recipe.notes) == 2
    assert f"{path}, line 1: the key run is called command since version 0.2; write `command`" in recipe.notes[0]
    assert "line 3" in recipe.notes[1] and "`shrink.set`" in recipe.notes[1] and "from version 0.4 on" in recipe.notes[1]


@pytest.mark.usefixtures("renamed")
def test_old_name_in_what_a_recipe_extends_is_read_too(tmp_path: Path) -> None:
    write(tmp_path, "timeout: 5\ncolour: red\n", "base.yaml")
    recipe = load_recipe(write(tmp_path, "extends: ./base.yaml\ncommand: [python, t.py]\n"))
    assert recipe.resources.timeout_s == 5.0
    assert ["base.yaml, line 1" in recipe.notes[0], "take it out: nothing has its place" in recipe.notes[1]] == [True, True]


@pytest.mark.usefixtures("renamed")
def test_mistake_under_an_old_name_still_names_its_line(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"line 2: .*timeout_s"):
        load_recipe(write(tmp_path, "command: [python, t.py]\ntimeout: soon\n"))


@pytest.mark.usefixtures("renamed")
def test_both_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="line 2: run is the old name of command, and both are there") as caught:
        load_recipe(write(tmp_path, "command: [python, t.py]\nrun: [python, u.py]\n"))
    assert caught.value.hint == "keep `command`"


def test_old_name_is_an_error_once_it_is_removed(tmp_path: Path) -> None:
    data, lines = {"run": ["python"]}, {(): 1, ("run",): 7}
    with pytest.raises(RecipeError, match=r"line 7: the key run is not read any more since version 0\.4") as caught:
        follow_renames(tmp_path, data, lines, version="0.4.1", table=TABLE)  # type: ignore[arg-type]
    assert caught.value.hint == "write `command`"


def test_recipe_without_old_names_is_left_alone(tmp_path: Path) -> None:
    data = {"command": ["python"], "shrink": {"set": {"a": 1}}}
    assert follow_renames(tmp_path, data, {(): 1}, version="0.3", table=TABLE) == ()
    assert data == {"command": ["python"], "shrink": {"set": {"a": 1}}}


@pytest.mark.usefixtures("renamed")
def test_warning_is_printed_where_a_recipe_is_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "run: [python, t.py]\n", finding.DEFAULT_RECIPE)
    assert finding.find_recipe(Asked(), tmp_path).command == ("python", "t.py")
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith("bisect-train: warning:") and "write `command`" in said
