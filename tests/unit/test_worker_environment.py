"""What a probe's program finds in its environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bisect_train.core.changes import Variant
from bisect_train.core.probe import ProbeSpec, Rung, RunSettings
from bisect_train_workers.environment import ProbeFolders, program_environment, without_recorder
from bisect_train_workers.injection import recorder_settings


def environment(
    tmp_path: Path, base: dict[str, str], *, env: tuple[tuple[str, str], ...] = (), seed_idx: int = 0, **changes: Any
) -> dict[str, str]:
    spec = ProbeSpec(Variant("0" * 40, "1" * 40, ("x",), env=env), Rung(1), seed_idx)
    settings = RunSettings(**{"python": "/env/bin/python", **changes})
    folders = ProbeFolders(tmp_path / "p", tmp_path / "co", tmp_path / "t")
    return program_environment(spec, settings, folders, port=21000, base=base)


def test_environment_hides_ray_git_and_this_tool(tmp_path: Path) -> None:
    base = {
        "RAY_ADDRESS": "x",
        "BISECT_TRAIN_HOME": "x",
        "GIT_DIR": "x",
        "GIT_INDEX_FILE": "x",
        "PYTHONPYCACHEPREFIX": "x",
        "HOME": "/h",
        "HF_HOME": "/hf",
    }
    env = environment(tmp_path, base)
    assert not [name for name in env if name.startswith(("RAY_", "BISECT_TRAIN_", "GIT_"))]
    assert "PYTHONPYCACHEPREFIX" not in env
    assert (env["HOME"], env["HF_HOME"]) == ("/h", "/hf") and "XDG_CACHE_HOME" not in env


def test_environment_of_a_closer_look_has_its_variables(tmp_path: Path) -> None:
    env = environment(tmp_path, {}, env=(("A", "1"),), debug_env=(("TORCH_DISTRIBUTED_DEBUG", "DETAIL"), ("A", "2")))
    assert (env["TORCH_DISTRIBUTED_DEBUG"], env["A"]) == ("DETAIL", "2")


def test_environment_pins_threads_and_hash_seed(tmp_path: Path) -> None:
    env = environment(tmp_path, {"OMP_NUM_THREADS": "64"}, threads=3)
    assert (env["OMP_NUM_THREADS"], env["MKL_NUM_THREADS"], env["PYTHONHASHSEED"]) == ("3", "3", "0")
    assert environment(tmp_path, {}, seed_idx=2)["PYTHONHASHSEED"] == "2000006"
    assert 0 <= int(environment(tmp_path, {}, seed_idx=5000)["PYTHONHASHSEED"]) < 2**32


def test_environment_without_gpus_hides_them(tmp_path: Path) -> None:
    assert environment(tmp_path, {"CUDA_VISIBLE_DEVICES": "3"})["CUDA_VISIBLE_DEVICES"] == ""
    assert environment(tmp_path, {"CUDA_VISIBLE_DEVICES": "3"}, gpus=1.0)["CUDA_VISIBLE_DEVICES"] == "3"


def test_environment_keeps_caches_private(tmp_path: Path) -> None:
    env = environment(tmp_path, {"TRITON_CACHE_DIR": "/shared"}, private=("TOKEN_CACHE",))
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TOKEN_CACHE"):
        assert Path(env[name]).is_dir() and Path(env[name]).is_relative_to(tmp_path / "p")
    assert env["TMPDIR"] == str(tmp_path / "t")


def test_environment_lets_the_variant_win(tmp_path: Path) -> None:
    env = environment(tmp_path, {"A": "1"}, env=(("A", "2"), ("OMP_NUM_THREADS", "7"), ("PYTHONPATH", "/overlay")))
    assert (env["A"], env["OMP_NUM_THREADS"]) == ("2", "7")
    assert env["PYTHONPATH"] == f"{tmp_path / 'p/recorder'}:/overlay"


def test_environment_redirects_the_users_repository_to_the_checkout(tmp_path: Path) -> None:
    base = {
        "PYTHONPATH": "/r/src:/r:/other:/r2:/r/.venv/lib/python3/site-packages:/tmp/ray/runtime_resources/working_dir_files/x:"
    }
    entries = environment(tmp_path, base, redirect_from="/r")["PYTHONPATH"].split(":")
    checkout = tmp_path / "co"
    assert entries == [
        str(tmp_path / "p/recorder"),
        f"{checkout}/src",
        str(checkout),
        "/other",
        "/r2",
        "/r/.venv/lib/python3/site-packages",
    ]


def test_environment_finds_the_interpreters_programs_first(tmp_path: Path) -> None:
    assert environment(tmp_path, {"PATH": "/usr/bin:/env/bin"})["PATH"] == "/env/bin:/usr/bin"


def test_environment_keeps_wandb_offline_unless_told(tmp_path: Path) -> None:
    assert environment(tmp_path, {})["WANDB_MODE"] == "offline"
    assert environment(tmp_path, {"WANDB_MODE": "online"})["WANDB_MODE"] == "online"


def test_environment_of_a_judge_has_no_recorder(tmp_path: Path) -> None:
    folders = ProbeFolders(tmp_path / "p", tmp_path / "co", tmp_path / "t")
    assert "PYTHONPATH" not in without_recorder(environment(tmp_path, {}), folders)
    assert without_recorder(environment(tmp_path, {"PYTHONPATH": "/x"}), folders)["PYTHONPATH"] == "/x"


def test_recorder_shifts_no_seed_of_a_program_that_is_given_one(tmp_path: Path) -> None:
    folders = ProbeFolders(tmp_path / "p", tmp_path / "co", tmp_path / "t")
    for command, seed_idx in ((("x", "--seed={seed}"), 0), (("x",), 3)):
        spec = ProbeSpec(Variant("0" * 40, "1" * 40, command), Rung(7), 3)
        told = recorder_settings(spec, RunSettings("python", every_step=True, redirect_from="/r"), folders)
        assert (told["seed_idx"], told["steps"], told["every_step"]) == (seed_idx, 7, True)
        assert (told["root"], told["redirect_from"]) == (str(tmp_path / "co"), "/r")
