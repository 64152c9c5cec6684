"""What a probe's numbers depend on besides its variant: the node's hardware and the interpreter's packages."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bisect_train.core.probe import RunSettings
from bisect_train_workers.environment import clean_environment

_VECTOR_LEVELS = (
    ("avx512", ("avx512f", "avx512bw", "avx512vl")),
    ("avx2", ("avx2", "fma")),
    ("avx", ("avx",)),
    ("sve", ("sve",)),
    ("neon", ("asimd",)),
)
_LIST_DISTRIBUTIONS = """
import hashlib, importlib.metadata as metadata, json, sys
own = sys.argv[1]
torch, items = "none", set()
for found in metadata.distributions():
    name = (found.metadata["Name"] or "").lower().replace("_", "-")
    if not name or name.startswith("bisect-train"):
        continue
    url = found.read_text("direct_url.json") or ""
    if own and ("file://" + own) in url:
        continue
    items.add(name + "==" + str(found.version))
    if name == "torch":
        torch = found.version
digest = hashlib.sha256("\\n".join(sorted(items)).encode()).hexdigest()[:12]
print(json.dumps({"python": sys.version.split()[0], "torch": torch, "digest": digest}))
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
    hardware = ", ".join([_cpu_model(), _vector_level(), *(_gpu_names() if settings.gpus else [])])
    asked = [settings.python, "-c", _LIST_DISTRIBUTIONS]
    asked.append(os.path.realpath(settings.redirect_from) if settings.redirect_from else "")
    try:
        done = subprocess.run(
            asked, env=clean_environment(os.environ), capture_output=True, timeout=_LIMIT_S, check=True, text=True
        )
        seen = json.loads(done.stdout.strip().splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        return NodeFacts(hardware, error=f"the interpreter {settings.python} cannot be used: {said[-1] if said else error}")
    return NodeFacts(hardware, f"python {seen['python']}, torch {seen['torch']}, packages {seen['digest']}")


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
    """Return the widest vector instructions: torch chooses its kernels by them."""
    lines = _cpu_lines()
    flags = set((lines.get("flags") or lines.get("Features") or "").split())
    return next((name for name, needed in _VECTOR_LEVELS if flags.issuperset(needed)), platform.machine())


def _gpu_names() -> list[str]:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, timeout=_LIMIT_S, check=True, text=True)
    except (OSError, subprocess.SubprocessError):
        return ["unknown GPU"]
    return sorted(set(done.stdout.strip().splitlines()))
