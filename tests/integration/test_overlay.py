"""Packages laid over the inherited environment: real wheels, pip and processes; never a network."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from bisect_train.core.fingerprint import EndingKind
from bisect_train.core.probe import EnvironmentSettings
from bisect_train_workers import installed, overlay_install
from bisect_train_workers.data_links import CannotStartError
from bisect_train_workers.node import NodeHome
from bisect_train_workers.overlay import Overlay, PackageRequest, hold_overlay, overlay_shelf
from tests.support.probes import job_of, make_settings, result_of
from tests.support.wheels import make_wheel

REPOSITORY = Path(__file__).resolve().parents[2]
HOLD = """
import sys
from pathlib import Path
from bisect_train_workers.node import NodeHome
from bisect_train_workers.overlay import PackageRequest, hold_overlay
home, links, *requirements = sys.argv[1:]
with hold_overlay(NodeHome(Path(home)), PackageRequest(sys.executable, tuple(requirements), (links,), "none")) as overlay:
    print(overlay.path, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def links(tmp_path: Path) -> Path:
    """A folder with two releases of toyopt."""
    for version in ("1.0", "2.0"):
        make_wheel(tmp_path / "links", "toyopt", version, {"toyopt/__init__.py": f"VERSION = {version!r}\n"})
    return tmp_path / "links"


@pytest.fixture
def home(tmp_path: Path) -> NodeHome:
    return NodeHome(tmp_path / "home")


def request_of(links: Path, *requirements: str, python: str = sys.executable) -> PackageRequest:
    return PackageRequest(python, requirements, (str(links),), "none")


def lay(home: NodeHome, links: Path, *requirements: str, python: str = sys.executable) -> Overlay:
    with hold_overlay(home, request_of(links, *requirements, python=python)) as overlay:
        return overlay


def refusal(home: NodeHome, links: Path, *requirements: str, python: str = sys.executable) -> str:
    with pytest.raises(CannotStartError) as caught:
        lay(home, links, *requirements, python=python)
    assert [path.name for path in (home.path / "overlays").iterdir() if path.is_dir()] == []
    return str(caught.value)


def say(overlay: Overlay, program: str, *, python: str = sys.executable) -> str:
    env = {**os.environ, "PYTHONPATH": str(overlay.path), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([python, "-c", program], env=env, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment without pip whose packages the tests write by hand."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder


@contextlib.contextmanager
def inherited(venv: Path, name: str, version: str, *, requires: Sequence[str] = (), code: str = "") -> Iterator[None]:
    """Have a package in the environment's site-packages."""
    site = next((venv / "lib").glob("python*/site-packages"))
    wheel = make_wheel(venv / "made", name, version, {f"{name}.py": code}, requires)
    shutil.unpack_archive(wheel, site, "zip")
    yield
    (site / f"{name}.py").unlink()
    shutil.rmtree(site / f"{name}-{version}.dist-info")


def test_a_laid_package_is_imported_and_the_rest_is_inherited(home: NodeHome, links: Path) -> None:
    overlay = lay(home, links, "toyopt==2.0")
    program = "import toyopt, numpy, importlib.metadata as m; print(toyopt.VERSION, m.version('toyopt'), numpy.__file__)"
    version, metadata, numpy_file = say(overlay, program).split()
    assert (version, metadata, overlay.packages) == ("2.0", "2.0", ("toyopt==2.0",))
    assert not numpy_file.startswith(str(overlay.path))


def test_an_overlay_is_built_once_and_is_read_only_with_byte_code(home: NodeHome, links: Path) -> None:
    first = lay(home, links, "toyopt==1.0")
    made_ns = first.path.stat().st_ctime_ns
    second = lay(home, links, "toyopt==1.0")
    assert (second.path, second.digest, second.path.stat().st_ctime_ns) == (first.path, first.digest, made_ns)
    assert not [path for path in first.path.rglob("*") if path.stat().st_mode & 0o222]
    byte_code = next(first.path.glob("toyopt/__pycache__/*.pyc")).read_bytes()
    assert byte_code[4] & 0b01, "checked by content, not by time"


def test_the_digest_says_what_was_laid_wherever_it_lies(home: NodeHome, links: Path, tmp_path: Path) -> None:
    one, two = lay(home, links, "toyopt==1.0"), lay(home, links, "toyopt==2.0")
    shutil.copytree(links, tmp_path / "elsewhere")
    again = lay(NodeHome(tmp_path / "other"), tmp_path / "elsewhere", "toyopt==1.0")
    assert one.digest == again.digest != two.digest
    make_wheel(links, "toyopt", "1.0", {"toyopt/__init__.py": "VERSION = 'rebuilt'\n"})
    rebuilt = lay(home, links, "toyopt==1.0")
    assert rebuilt.digest != one.digest and say(rebuilt, "import toyopt; print(toyopt.VERSION)") == "rebuilt"


def test_a_wheel_by_its_path_is_laid_and_its_digest_is_checked(home: NodeHome, links: Path) -> None:
    wheel = (links / "toyopt-2.0-py3-none-any.whl").as_uri()
    assert lay(home, links, f"toyopt @ {wheel}").packages == ("toyopt==2.0",)
    with pytest.raises(CannotStartError, match="cannot be installed"):
        lay(home, links, f"toyopt @ {wheel}#sha256={'0' * 64}")
    with pytest.raises(CannotStartError, match="does not exist on this machine"):
        lay(home, links, "toyopt @ file:///nothing/toyopt-2.0-py3-none-any.whl")


def test_a_missing_version_cannot_start_and_says_what_pip_said(home: NodeHome, links: Path) -> None:
    assert "toyopt==3.0 cannot be installed: ERROR: Could not find a version" in refusal(home, links, "toyopt==3.0")
    assert "the folder of packages /nothing does not exist" in refusal(home, Path("/nothing"), "toyopt==1.0")
    assert "'toyopt=>1' is no requirement" in refusal(home, links, "toyopt=>1")


def test_two_laid_packages_that_contradict_each_other_cannot_start(home: NodeHome, links: Path) -> None:
    make_wheel(links, "toya", "2.0", {"toya.py": ""}, ["toyb>=2", "toyb>=9; sys_platform == 'win32'", "absent>=1"])
    make_wheel(links, "toyb", "1.0", {"toyb.py": ""})
    make_wheel(links, "toyb", "2.1", {"toyb.py": ""})
    message = refusal(home, links, "toya==2.0", "toyb==1.0")
    assert message == "the packages do not go together: toya 2.0 needs toyb>=2, the environment has toyb 1.0"
    assert lay(home, links, "toya==2.0", "toyb==2.1").packages == ("toya==2.0", "toyb==2.1")


def test_an_inherited_package_that_a_laid_one_cannot_work_with_is_a_conflict(home: NodeHome, links: Path, venv: Path) -> None:
    make_wheel(links, "toya", "2.0", {"toya.py": ""}, ["toyb>=2"])
    python = str(venv / "bin/python")
    with inherited(venv, "toyb", "1.0"):
        assert "needs toyb>=2, the environment has toyb 1.0" in refusal(home, links, "toya==2.0", python=python)
    with inherited(venv, "toyb", "2.0"):
        assert lay(home, links, "toya==2.0", python=python).warnings == ()


def test_an_inherited_package_that_the_laid_one_breaks_is_a_warning(home: NodeHome, links: Path, venv: Path) -> None:
    python = str(venv / "bin/python")
    needs = ["toyopt<2", "toyopt<1"]  # the second was not met before either
    with inherited(venv, "user", "1.0", requires=needs), inherited(venv, "toyopt", "1.5"):
        laid = lay(home, links, "toyopt==2.0", python=python)
        assert laid.warnings == ("packages that do not go together: user 1.0 needs toyopt<2, the environment has toyopt 2.0",)
        assert say(laid, "import toyopt; print(toyopt.VERSION)", python=python) == "2.0"


def test_an_editable_install_with_a_finder_behind_the_path_is_laid_over(
    home: NodeHome, links: Path, venv: Path, tmp_path: Path
) -> None:
    with editable(venv, tmp_path, "sys.meta_path.append(Finder)"):
        python = str(venv / "bin/python")
        assert subprocess.run([python, "-c", "import toyopt"], check=False).returncode == 0
        overlay = lay(home, links, "toyopt==2.0", python=python)
        assert say(overlay, "import toyopt; print(toyopt.VERSION)", python=python) == "2.0"


def test_an_editable_install_with_a_finder_before_the_path_cannot_be_laid_over(
    home: NodeHome, links: Path, venv: Path, tmp_path: Path
) -> None:
    with editable(venv, tmp_path, "sys.meta_path.insert(0, Finder)"):
        message = refusal(home, links, "toyopt==2.0", python=str(venv / "bin/python"))
    assert f"python imports toyopt from {tmp_path}/src/toyopt.py" in message and "uninstall" in message


@contextlib.contextmanager
def editable(venv: Path, tmp_path: Path, install: str) -> Iterator[None]:
    """Have toyopt as an editable install through a finder on `sys.meta_path`."""
    site = next((venv / "lib").glob("python*/site-packages"))
    source = tmp_path / "src/toyopt.py"
    source.parent.mkdir()
    source.write_text("VERSION = 'editable'\n")
    finder = f"""
import sys
from importlib.util import spec_from_file_location
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return spec_from_file_location(name, {str(source)!r}) if name == "toyopt" else None
{install}
"""
    (site / "_toy_finder.py").write_text(finder)
    (site / "_toy.pth").write_text("import _toy_finder\n")
    yield
    for name in ("_toy_finder.py", "_toy.pth"):
        (site / name).unlink()


def test_an_interpreter_without_pip_is_served_by_ours_and_else_says_so(
    home: NodeHome, links: Path, venv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    python = str(venv / "bin/python")
    assert lay(home, links, "toyopt==1.0", python=python).packages == ("toyopt==1.0",)
    monkeypatch.setattr(overlay_install.sys, "executable", python)
    with pytest.raises(CannotStartError, match="has no pip and uv is not on PATH"):
        lay(home, links, "toyopt==2.0", python=python)


def test_an_environment_that_changed_is_looked_at_anew(venv: Path) -> None:
    python = str(venv / "bin/python")
    before = installed.find_inherited(python)
    assert installed.find_inherited(python) is before
    with inherited(venv, "newcomer", "1.0"):
        during = installed.find_inherited(python)
    assert "newcomer" in during.packages and during.identity != before.identity


def test_two_processes_that_ask_at_once_get_the_same_folder(home: NodeHome, links: Path) -> None:
    running = [hold_in_process(home, links, "toyopt==2.0") for _ in range(2)]
    paths = [process.communicate("", timeout=120)[0].strip() for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert paths[0] == paths[1] and (Path(paths[0]) / "toyopt/__init__.py").is_file()


def test_a_killed_builder_leaves_no_half_folder_and_the_next_one_builds(home: NodeHome, links: Path) -> None:
    files = {f"toyopt/part{idx}.py": "x = 1\n" * 200 for idx in range(300)}
    make_wheel(links, "toyopt", "3.0", {"toyopt/__init__.py": "VERSION = '3.0'\n", **files})
    process = hold_in_process(home, links, "toyopt==3.0")
    until = time.monotonic() + 60
    while not any((home.path / "overlays").glob("*.draft/site-packages")) and time.monotonic() < until:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not [path for path in (home.path / "overlays").iterdir() if path.is_dir() and not path.suffix]
    overlay = lay(home, links, "toyopt==3.0")  # waits for the killed worker's pip, which holds the lock on
    assert say(overlay, "import toyopt.part299; print(toyopt.VERSION)") == "3.0"
    assert not list((home.path / "overlays").glob("*.draft"))


def hold_in_process(home: NodeHome, links: Path, *requirements: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLD, str(home.path), str(links), *requirements]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)


def test_pruning_removes_the_ones_not_used_for_longest_but_none_in_use(home: NodeHome, links: Path) -> None:
    old, new = lay(home, links, "toyopt==1.0"), lay(home, links, "toyopt==2.0")
    os.utime(old.path.parent.with_suffix(".use"), (1, 1))
    size = sum(path.lstat().st_size for path in new.path.parent.rglob("*"))
    assert overlay_shelf(home, 2 * size + 1000).prune() == []
    with hold_overlay(home, request_of(links, "toyopt==1.0")) as held:
        os.utime(held.path.parent.with_suffix(".use"), (1, 1))
        assert overlay_shelf(home, size + 1000).prune() == [new.path.parent.name]
        assert held.path.is_dir()
    assert overlay_shelf(home, 0).prune() == [old.path.parent.name]
    assert lay(home, links, "toyopt==1.0").path.is_dir()


PROGRAM = """\
import os, fake_training, toyopt
fake_training.step(float(toyopt.VERSION))
print("path", os.environ["PYTHONPATH"])
"""


def run_with(folder: Path, links: Path, *packages: str, home: str = "home"):  # type: ignore[no-untyped-def]
    settings = make_settings(environment=EnvironmentSettings(find_links=(str(links),), index="none"))
    job = job_of(folder / f"repo{time.monotonic_ns()}", PROGRAM, steps=1, settings=settings, packages=packages)
    return result_of(job, folder / home)


def test_probes_run_with_their_variants_packages_in_any_order(tmp_path: Path, links: Path) -> None:
    seen = [run_with(tmp_path, links, f"toyopt=={version}") for version in ("1.0", "2.0", "1.0")]
    losses = [result.fingerprint.ranks[0].steps[0].loss for result in seen]
    digests = [dict(result.fingerprint.facts)["environment"] for result in seen]
    assert losses == [1.0, 2.0, 1.0]
    assert digests[0] == digests[2] != digests[1]
    path = next(line for line in seen[0].log_tail.splitlines() if line.startswith("path ")).split()[1].split(":")
    assert path[0].endswith("/recorder") and path[1].endswith("/site-packages")


def test_packages_that_cannot_be_laid_end_the_probe_before_it_starts(tmp_path: Path, links: Path) -> None:
    ending = run_with(tmp_path, links, "toyopt==3.0").fingerprint.ending
    assert ending.kind is EndingKind.CANNOT_START and "No matching distribution found" in ending.message


def test_a_wheel_in_the_repository_is_found_in_the_checkout(tmp_path: Path, links: Path) -> None:
    from tests.support.probes import TinyRepo, make_job

    wheel = (links / "toyopt-2.0-py3-none-any.whl").read_bytes()
    commit = TinyRepo(tmp_path / "repo").commit({"train.py": PROGRAM, "wheels/toyopt-2.0-py3-none-any.whl": wheel})
    result = result_of(
        make_job(commit, steps=1, packages=("toyopt @ ./wheels/toyopt-2.0-py3-none-any.whl",)), tmp_path / "home"
    )
    assert result.fingerprint.ranks[0].steps[0].loss == 2.0


@pytest.mark.skipif(shutil.which("uv") is None, reason="uv is not on PATH")
def test_a_whole_environment_holds_the_set_and_nothing_inherited(tmp_path: Path, links: Path) -> None:
    make_wheel(links, "toya", "1.0", {"toya.py": ""}, ["toyopt>=2"])
    settings = make_settings(environment=EnvironmentSettings("uv", (str(links),), "none"), needs_recorder=False)
    program = "import importlib.metadata as m\nprint('has', *sorted({d.metadata['Name'] for d in m.distributions()}))\n"
    result = result_of(job_of(tmp_path / "repo", program, settings=settings, packages=("toya==1.0",)), tmp_path / "home")
    assert "has toya toyopt\n" in result.log_tail
    assert dict(result.fingerprint.facts)["environment"]


def test_a_whole_environment_without_uv_says_so(tmp_path: Path, links: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    settings = make_settings(environment=EnvironmentSettings("uv", (str(links),), "none"))
    result = result_of(job_of(tmp_path / "repo", PROGRAM, settings=settings, packages=("toyopt==1.0",)), tmp_path / "home")
    assert "uv is not on PATH" in result.fingerprint.ending.message
