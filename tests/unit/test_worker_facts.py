"""What a node tells about itself."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bisect_train_workers import node_facts
from bisect_train_workers.node_facts import count_cpus, find_node_facts, name_settings
from tests.support.probes import make_settings


def test_facts_name_the_hardware_and_the_packages() -> None:
    facts = find_node_facts(make_settings())
    assert facts.hardware_class and not facts.error
    assert facts.interpreter.startswith("python 3.") and "packages" in facts.interpreter
    assert facts == find_node_facts(make_settings())


def test_facts_of_an_unknown_interpreter_say_so(tmp_path: Path) -> None:
    assert "/no/such/python" in find_node_facts(make_settings(python="/no/such/python")).error
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho it is broken >&2\nexit 3\n")
    broken.chmod(0o755)
    assert "it is broken" in find_node_facts(make_settings(python=str(broken))).error


def test_count_cpus_is_at_most_what_may_be_used() -> None:
    assert 1 <= count_cpus() <= (os.cpu_count() or 1)


def make_python(folder: Path, *, version: str = "1.0", code: str = "x = 1\n", conda: str = "") -> str:
    """Return an interpreter (an environment without pip) that has one distribution, laid by hand with its RECORD."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = (folder / "lib").glob("python*/site-packages")
    info = site / f"toy-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: toy\nVersion: {version}\n")
    (site / "toy.py").write_text(code)
    digest = hashlib.sha256(code.encode()).hexdigest()
    (info / "RECORD").write_text(f"toy.py,sha256={digest},{len(code)}\n../../../bin/toy,sha256={folder.name},3\ntoy.pyc,,\n")
    if conda:
        (folder / "conda-meta").mkdir()
        (folder / "conda-meta" / f"{conda}.json").write_text("{}")
    return str(folder / "bin" / "python")


def interpreter_of(python: str) -> str:
    facts = find_node_facts(make_settings(python=python))
    assert not facts.error
    return facts.interpreter


def test_interpreters_with_the_same_packages_are_the_same(tmp_path: Path) -> None:
    assert interpreter_of(make_python(tmp_path / "a")) == interpreter_of(make_python(tmp_path / "b"))


@pytest.mark.parametrize("change", [{"version": "1.1"}, {"code": "x = 2\n"}, {"conda": "mkl-2024.0-h66d3029"}], ids=str)
def test_interpreter_changes_with_what_is_installed(tmp_path: Path, change: dict[str, str]) -> None:
    before = interpreter_of(make_python(tmp_path / "a"))
    assert interpreter_of(make_python(tmp_path / "b", **change)) != before


@pytest.mark.parametrize(
    "name",
    [
        *("ATEN_CPU_CAPABILITY", "MKL_CBWR", "KMP_DETERMINISTIC_REDUCTION", "OPENBLAS_CORETYPE", "DNNL_MAX_CPU_ISA"),
        *("NVIDIA_TF32_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG", "NCCL_ALGO", "NCCL_MIN_NCHANNELS", "TORCH_BLAS_PREFER_CUBLASLT"),
        *("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONOPTIMIZE"),
    ],
)
def test_settings_that_choose_kernels_are_part_of_the_interpreter(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(os, "environ", {key: value for key, value in os.environ.items() if key != name})
    before = name_settings(os.environ)
    one, other = (name_settings({**os.environ, name: value}) for value in ("1", "2"))
    assert len({before, one, other}) == 3


@pytest.mark.parametrize(
    "name", ["OMP_NUM_THREADS", "MKL_VERBOSE", "NCCL_DEBUG", "TORCH_LOGS", "TORCHINDUCTOR_CACHE_DIR", "TERM", "HOME", "RAY_x"]
)
def test_settings_that_change_no_number_are_not(name: str) -> None:
    assert name_settings({name: "1"}) == ""


def test_path_that_ray_adds_is_not_part_of_the_settings() -> None:
    added = "/tmp/session/runtime_resources/working_dir_files/x"
    assert name_settings({"PYTHONPATH": added}) == ""
    assert name_settings({"PYTHONPATH": f"{added}:/lib"}) == name_settings({"PYTHONPATH": "/lib"}) != ""


def test_hardware_names_what_kernels_are_chosen_by(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = {"flags": "avx avx2 fma avx512f avx512bw avx512vl"}
    monkeypatch.setattr(node_facts, "_cpu_lines", lambda: {"model name": "A Virtual Processor", **flags})
    plain = find_node_facts(make_settings()).hardware_class
    flags["flags"] += " avx512_bf16 amx_bf16"
    assert find_node_facts(make_settings()).hardware_class == f"{plain} bf16 amx_bf16"


def test_hardware_says_how_many_gpus_a_probe_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_facts, "_ask_gpu_names", lambda: ["a GPU, 1.0"])
    half, one, two = (find_node_facts(make_settings(gpus=gpus)).hardware_class for gpus in (0.5, 1.0, 2.0))
    assert half == one and one.endswith("a GPU, 1.0") and two == f"{one}, 2 per probe"
    assert "GPU" not in find_node_facts(make_settings()).hardware_class
