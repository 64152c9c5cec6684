"""Which packages a requirement, lock or environment file pins, whatever its format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bisect_train.changes.packages import Pin, read_packages, read_packages_text
from bisect_train.core.errors import InputError

LINUX = {
    "sys_platform": "linux",
    "platform_machine": "x86_64",
    "python_version": "3.11",
    "python_full_version": "3.11.4",
}


def read(name: str, text: str, **others: str) -> dict[str, Pin]:
    def include(path: str) -> str:
        found = {key.replace("__", "/").replace("_", "."): value for key, value in others.items()}.get(path)
        if found is None:
            raise FileNotFoundError(path)
        return found

    return read_packages_text(name, text, include=include, environment=LINUX)


def requirements(name: str, text: str, **others: str) -> list[str]:
    return [pin.requirement for pin in read(name, text, **others).values()]


def refusal(name: str, text: str, **others: str) -> str:
    with pytest.raises(InputError) as caught:
        read(name, text, **others)
    assert caught.value.hint
    return caught.value.message


def test_requirements_with_comments_continuations_hashes_and_options_give_pins() -> None:
    text = """\
# a comment
--index-url https://index.example/simple
Torch==2.5.1 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
numpy>=1.2,<2   # another
foo[B,a]~=1.4
"""
    assert requirements("requirements.txt", text) == ["torch==2.5.1", "numpy<2,>=1.2", "foo[a,b]~=1.4"]


def test_markers_are_evaluated_for_the_given_interpreter() -> None:
    text = 'a==1; python_version < "3.10"\na==2; python_version >= "3.10"\nb==1; sys_platform == "win32"\n'
    pins = read("requirements.txt", text)
    assert [pin.requirement for pin in pins.values()] == ["a==2"]
    assert pins["a"].marker == 'python_version >= "3.10"'


def test_includes_are_relative_to_the_including_file() -> None:
    assert requirements(
        "requirements/dev.txt",
        "-r base.txt\n-c../limits.txt\na==1\n",
        requirements__base_txt="numpy>=1\n",
        limits_txt="numpy==1.5\nb==2",
    ) == ["numpy==1.5", "b==2", "a==1"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a==1\n\nb=>2\n", "requirements.txt, line 3: 'b=>2': no requirement"),
        ("a==1\na==2\n", "line 2: 'a==2': a is asked for as ==1 and as ==2"),
        ("a @ file:///x.whl\na @ file:///y.whl\n", "a is asked for as file:///x.whl and as file:///y.whl"),
        ("-r ../out.txt\n", "must lie in the folder of the file"),
        ("-r /etc/passwd\n", "must lie in the folder of the file"),
        ("-r https://h/x.txt\n", "must lie on this disk"),
        ("-r nothing.txt\n", "there is no file nothing.txt"),
        ("-r requirements.txt\n", "the file includes itself: requirements.txt -> requirements.txt"),
        ("git+https://h/y.git@abc\n", "the package's name is not known"),
        ("a==1; nonsense > 2\n", "no requirement"),
    ],
)
def test_requirements_that_cannot_be_used_are_refused_with_the_line(text: str, said: str) -> None:
    assert said in refusal("requirements.txt", text, requirements_txt=text)


def test_a_mistake_in_an_included_file_names_that_file() -> None:
    assert refusal("requirements.txt", "-r more/b.txt", more__b_txt="x\ny==\n").startswith("more/b.txt, line 2: 'y=='")


def test_pip_freeze_text_with_editables_and_direct_references_gives_pins() -> None:
    text = """\
attrs==26.1.0
-e git+ssh://git@h/x/y.git@0123abc#egg=Mini_Trainer
# Editable install with no version control (toy==1.0)
-e /elsewhere/toy-src
torch @ file:///wheels/torch-2.13.0-py3-none-any.whl#sha256=ab
"""
    assert requirements("frozen.txt", text) == [
        "attrs==26.1.0",
        "mini-trainer @ git+ssh://git@h/x/y.git@0123abc#egg=Mini_Trainer",
        "toy @ file:///elsewhere/toy-src",
        "torch @ file:///wheels/torch-2.13.0-py3-none-any.whl#sha256=ab",
    ]


def test_packages_of_the_repository_itself_are_no_pins(tmp_path: Path) -> None:
    (tmp_path / "libs/own").mkdir(parents=True)
    path = tmp_path / "requirements.txt"
    path.write_text(f"-e .\n./libs/own\nown @ {(tmp_path / 'libs/own').as_uri()}\na==1\n")
    assert list(read_packages(path)) == ["a"]
    assert requirements("requirements.txt", "-e .\n-e ./libs/own\n") == []


def test_local_paths_become_absolute_and_folders_are_named_by_their_project(tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other/pyproject.toml").write_text('[project]\nname = "Mini.Trainer"\n')
    (tmp_path / "repo/x-1.0-py3-none-any.whl").touch()
    path = tmp_path / "repo/requirements.txt"
    path.write_text("../other\n./x-1.0-py3-none-any.whl\n")
    assert [pin.requirement for pin in read_packages(path).values()] == [
        f"mini-trainer @ {(tmp_path / 'other').as_uri()}",
        f"x @ {(tmp_path / 'repo/x-1.0-py3-none-any.whl').as_uri()}",
    ]


def test_a_wheel_in_a_commits_tree_keeps_its_relative_path() -> None:
    assert requirements("requirements.txt", "./wheels/x-1.0-py3-none-any.whl\n") == ["x @ ./wheels/x-1.0-py3-none-any.whl"]


def test_files_on_disk_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"a==1 # \xe9\n")
    for name, said in (("none.txt", "there is no such file"), ("latin.txt", "is not UTF-8"), (".", "cannot read")):
        with pytest.raises(InputError, match=said):
            read_packages(tmp_path / name)
    with pytest.raises(InputError, match="lies outside"):
        read_packages(tmp_path / "latin.txt", root=tmp_path / "inner")


def test_a_root_lets_a_file_include_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "requirements").mkdir()
    (tmp_path / "base.txt").write_text("a==1\n")
    (tmp_path / "requirements/dev.txt").write_text("-r ../base.txt\n")
    assert list(read_packages(tmp_path / "requirements/dev.txt", root=tmp_path)) == ["a"]


def test_pyproject_gives_its_dependencies_without_the_optional_ones() -> None:
    text = '[project]\nname = "x"\ndependencies = ["a==1", "b>2; sys_platform == \'win32\'"]\n'
    assert requirements("pyproject.toml", text + '[project.optional-dependencies]\ndev = ["c"]\n') == ["a==1"]
    assert "are dynamic" in refusal("pyproject.toml", '[project]\ndynamic = ["dependencies"]\n')
    assert "[project] dependencies: 'b=>1'" in refusal("pyproject.toml", '[project]\ndependencies = ["b=>1"]\n')
    assert "pyproject.toml, line 2:" in refusal("pyproject.toml", "[project]\nname = \n")


UV_LOCK = """\
version = 1
[[package]]
name = "proj"
version = "0.1"
source = { virtual = "." }
dependencies = [
    { name = "a" },
    { name = "b", marker = "sys_platform == 'win32'" },
    { name = "c", extra = ["fast"] },
    { name = "lib" },
]
[package.dev-dependencies]
dev = [{ name = "d" }]
[[package]]
name = "a"
version = "1.0"
source = { registry = "https://i" }
dependencies = [{ name = "e" }]
[[package]]
name = "b"
version = "1.0"
source = { registry = "https://i" }
[[package]]
name = "c"
version = "1.0"
source = { git = "https://h/c?subdirectory=py&rev=main#abc" }
[package.optional-dependencies]
fast = [{ name = "f" }]
[[package]]
name = "d"
version = "1.0"
source = { registry = "https://i" }
[[package]]
name = "e"
version = "1.0"
source = { registry = "https://i" }
resolution-markers = ["python_full_version < '3.10'"]
[[package]]
name = "e"
version = "2.0"
source = { registry = "https://i" }
resolution-markers = ["python_full_version >= '3.10'"]
[[package]]
name = "f"
version = "3"
source = { registry = "https://i" }
[[package]]
name = "lib"
version = "3"
source = { editable = "libs/lib" }
dependencies = [{ name = "g" }]
[[package]]
name = "g"
version = "4"
source = { registry = "https://i" }
"""


def test_uv_lock_gives_what_the_project_reaches_on_this_machine() -> None:
    pins = read("uv.lock", UV_LOCK)
    assert sorted(pin.requirement for pin in pins.values()) == [
        "a==1.0",
        "c @ git+https://h/c@abc#subdirectory=py",
        "e==2.0",
        "f==3",
        "g==4",
    ]
    assert pins["a"].needs == ("e",)


def test_poetry_lock_gives_the_main_group() -> None:
    text = """\
[[package]]
name = "A"
version = "1.0"
optional = false
groups = ["main", "dev"]
[package.dependencies]
b = ">=1"
[[package]]
name = "b"
version = "2.0"
category = "main"
[[package]]
name = "old"
version = "1"
category = "dev"
[[package]]
name = "extra"
version = "1"
optional = true
[[package]]
name = "win"
version = "1"
markers = "sys_platform == 'win32'"
[[package]]
name = "g"
version = "1"
[package.source]
type = "git"
url = "https://h/g"
resolved_reference = "abc"
"""
    pins = read("poetry.lock", text)
    assert [pin.requirement for pin in pins.values()] == ["a==1.0", "b==2.0", "g @ git+https://h/g@abc"]
    assert pins["a"].needs == ("b",)
    assert "package nameless" not in refusal("poetry.lock", "[[package]]\nversion = '1'\n")
    assert "package a: 'None': it has no version" in refusal("poetry.lock", "[[package]]\nname = 'a'\n")


def test_pipfile_lock_gives_the_default_section() -> None:
    content = {
        "default": {
            "A": {"version": "==1.0", "hashes": ["sha256:aa"], "extras": ["x"]},
            "w": {"version": "==1.0", "markers": "sys_platform == 'win32'"},
            "g": {"git": "https://h/g", "ref": "abc"},
        },
        "develop": {"d": {"version": "==1"}},
    }
    assert requirements("Pipfile.lock", json.dumps(content)) == ["a[x]==1.0", "g @ git+https://h/g@abc"]


def test_pylock_gives_what_holds_here() -> None:
    text = """\
lock-version = "1.0"
[[packages]]
name = "a"
version = "1.0"
[[packages]]
name = "b"
version = "1.0"
marker = "sys_platform == 'win32'"
[[packages]]
name = "c"
vcs = { type = "git", url = "https://h/c", commit-id = "abc" }
"""
    assert requirements("pylock.toml", text) == ["a==1.0", "c @ git+https://h/c@abc"]


def test_conda_environment_gives_its_pins_and_those_of_its_pip_list() -> None:
    text = """\
name: x
dependencies:
  - python=3.11
  - conda-forge::pytorch=2.4.1=cuda_0
  - numpy=1.26
  - scipy>=1.2,<2
  - openssl==1.1.1w
  - mkl 2024.*
  - pip:
    - a==1
    - -r more.txt
"""
    pins = read("environment.yml", text, more_txt="q==1")
    assert [pin.requirement for pin in pins.values()] == [
        "python==3.11.*",
        "pytorch==2.4.1",
        "numpy==1.26.*",
        "scipy<2,>=1.2",
        "openssl===1.1.1w",
        "mkl==2024.*",
        "a==1",
        "q==1",
    ]
    assert [pin.name for pin in pins.values() if not pin.is_conda] == ["a", "q"]
    assert "the pip list: 'a=>1'" in refusal("environment.yml", "dependencies:\n- pip: ['a=>1']\n")
    assert "lists its packages" in refusal("environment.yml", "name: x\n")
    assert "environment.yml, line 3" in refusal("environment.yml", "a: [\nb: c\n")


def test_conda_lock_gives_this_machines_platform() -> None:
    text = """\
version: 1
package:
- {name: numpy, version: 1.26.4, manager: conda, platform: linux-64, dependencies: {python: ">=3.9"}, category: main}
- {name: numpy, version: 1.26.0, manager: conda, platform: osx-arm64, category: main}
- {name: toy, version: "1.0", manager: pip, platform: linux-64, category: main}
- {name: dev, version: "1.0", manager: pip, platform: linux-64, category: dev}
"""
    pins = read("conda-lock.yml", text)
    assert [(pin.requirement, pin.is_conda, pin.needs) for pin in pins.values()] == [
        ("numpy==1.26.4", True, ("python",)),
        ("toy==1.0", False, ()),
    ]
    assert "nothing for this machine" in refusal("conda-lock.yml", text.replace("linux-64", "win-64"))


def test_other_files_are_refused_with_the_list_of_formats() -> None:
    with pytest.raises(InputError) as caught:
        read("setup.cfg", "")
    assert "uv.lock" in caught.value.hint
