"""What a probe's numbers depend on besides its variant: the node's hardware and the interpreter's packages."""

from __future__ import annotations

import json
import math
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bisect_train.core.changes import digest_of
from bisect_train.core.probe import RunSettings
from bisect_train_workers.environment import RAY_CODE, clean_environment

_VECTOR_LEVELS = (
    ("avx512", ("avx512f", "avx512bw", "avx512vl")),
    ("avx2", ("avx2", "fma")),
    ("avx", ("avx",)),
    ("sve", ("sve",)),
    ("neon", ("asimd",)),
)
_FINER_LEVELS = ("avx512_bf16", "avx512_fp16", "avx512_vnni", "avx_vnni", "amx_bf16", "bf16", "i8mm", "sve2")
"""Instructions beyond a level for which oneDNN and others have kernels of their own; clouds hide them behind one model name."""

_CHOOSES_NUMBERS = re.compile(
    r"ATEN_CPU_CAPABILITY|(OMP|KMP|GOMP|MKL|OPENBLAS|BLIS|DNNL|ONEDNN|NPY)_\w+|(CUBLAS|CUDNN|ROCBLAS|HIPBLASLT|MIOPEN)\w*"
    r"|NVIDIA_TF32_OVERRIDE|HSA_OVERRIDE_GFX_VERSION|NCCL_(ALGO|PROTO|NTHREADS|NVLS_ENABLE|P2P_DISABLE|(MIN|MAX)_\w*CHANNELS)"
    r"|TORCH_(ALLOW_TF32\w+|BLAS_\w+|COMPILE_\w+|CUDNN\w*|USE_\w+)|TORCHINDUCTOR_\w+|TORCHDYNAMO_\w+|PYTORCH_(JIT|TUNABLEOP)\w*"
    r"|XLA_FLAGS|LD_PRELOAD|LD_LIBRARY_PATH|DYLD_\w+|PYTHONHOME|PYTHONOPTIMIZE"
)
"""Variables by which libraries choose kernels, threads or precision, and those that decide which libraries are loaded."""
_NO_NUMBERS = re.compile(r"\w*(VERBOSE|DEBUG|DISPLAY_ENV|CACHE_DIR|LOG\w*)|(OMP|MKL)_NUM_THREADS|TORCHINDUCTOR_COMPILE_THREADS")
"""Of these the ones that change no number, and the ones that each probe gets anew."""

_LIST_DISTRIBUTIONS = """
import hashlib, importlib.metadata as metadata, json, os, platform, sys
own = sys.argv[1]
def content_of(found):
    lines = (found.read_text("RECORD") or "").splitlines()
    kept = [line for line in lines if not line.startswith("../") and ".dist-info/" not in line and ",sha256=" in line]
    return hashlib.sha256("\\n".join(sorted(kept)).encode()).hexdigest()[:12] if kept else ""
def origin_of(text):
    try:
        return str((json.loads(text).get("vcs_info") or {}).get("commit_id", ""))
    except ValueError:
        return ""
torch, items = "none", set()
for found in metadata.distributions():
    name = (found.metadata["Name"] or "").lower().replace("_", "-")
    if not name or name.startswith("bisect-train"):
        continue
    url = found.read_text("direct_url.json") or ""
    if own and ("file://" + own) in url:
        continue
    items.add("%s==%s %s %s" % (name, found.version, content_of(found), origin_of(url)))
    if name == "torch":
        torch = found.version
try:  # conda's libraries (MKL, cuDNN) are no distributions of python
    items.update("conda " + name for name in os.listdir(os.path.join(sys.prefix, "conda-meta")) if name.endswith(".json"))
except OSError:
    pass
digest = hashlib.sha256("\\n".join(sorted(items)).encode()).hexdigest()[:12]
libc = " ".join(platform.libc_ver()).strip()
print(json.dumps({"python": sys.version.split()[0], "torch": torch, "digest": digest, "libc": libc}))
"""
_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """See MachineFacts; `error` says why the interpreter could not be asked, else ""."""

    hardware_class: str
    interpreter: str = ""
    error: str = ""


def count_cpus() -> int:
    """Return how many CPUs this process may use: those it may run on, and no more than its control group's share."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="utf-8").split()
        return max(1, min(allowed, int(quota) // int(period)))
    except (OSError, ValueError):  # no control groups, or the quota is "max"
        return allowed


def find_node_facts(settings: RunSettings) -> NodeFacts:
    """Return the facts of this node for probes with these settings."""
    hardware = find_hardware(settings.gpus)
    asked = [settings.python, "-c", _LIST_DISTRIBUTIONS]
    asked.append(os.path.realpath(settings.redirect_from) if settings.redirect_from else "")
    try:
        done = subprocess.run(
            asked, env=clean_environment(os.environ), cwd="/", capture_output=True, timeout=_LIMIT_S, check=True, text=True
        )
        seen = json.loads(done.stdout.strip().splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        return NodeFacts(hardware, error=f"the interpreter {settings.python} cannot be used: {said[-1] if said else error}")
    parts = [f"python {seen['python']}", f"torch {seen['torch']}", f"packages {seen['digest']}", seen["libc"]]
    return NodeFacts(hardware, ", ".join(part for part in [*parts, name_settings(os.environ)] if part))


def find_hardware(gpus: float) -> str:
    """Return the hardware class of this node for probes that take so many GPUs."""
    return ", ".join([_cpu_model(), _vector_level(), *(_gpu_names(gpus) if gpus else [])])


def name_settings(environ: Mapping[str, str]) -> str:
    """Return a short name for the inherited variables that change numbers, "" where none is set; without what Ray adds."""
    chosen = {
        name: value
        for name, value in clean_environment(environ).items()
        if value and _CHOOSES_NUMBERS.fullmatch(name) and not _NO_NUMBERS.fullmatch(name)
    }
    entries = [entry for entry in environ.get("PYTHONPATH", "").split(os.pathsep) if entry and RAY_CODE not in entry]
    if entries:
        chosen["PYTHONPATH"] = os.pathsep.join(entries)
    return f"settings {digest_of(chosen)[:8]}" if chosen else ""


def _cpu_lines() -> dict[str, str]:
    """Return the first processor's entries of /proc/cpuinfo, {} where there is none."""
    found: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            found.setdefault(key.strip(), value.strip())
    except OSError:
        pass
    return found


def _cpu_model() -> str:
    return _cpu_lines().get("model name") or platform.processor() or platform.machine()


def _vector_level() -> str:
    """Return the widest vector instructions, and finer ones: torch and its libraries choose their kernels by them."""
    lines = _cpu_lines()
    flags = set((lines.get("flags") or lines.get("Features") or "").split())
    level = next((name for name, needed in _VECTOR_LEVELS if flags.issuperset(needed)), platform.machine())
    return " ".join([level, *(name.removeprefix("avx512_") for name in _FINER_LEVELS if name in flags)])


def _gpu_names(gpus: float) -> list[str]:
    """Return the models of the node's GPUs with their driver, and how many a probe sees where that is more than one."""
    names = _ask_gpu_names()
    return [*names, f"{math.ceil(gpus)} per probe"] if gpus > 1 else names


def _ask_gpu_names() -> list[str]:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, timeout=_LIMIT_S, check=True, text=True)
    except (OSError, subprocess.SubprocessError):
        return ["unknown GPU"]
    return sorted(set(done.stdout.strip().splitlines()))
