"""Count the processes that the kernel killed for want of memory: a SIGKILL alone does not say why."""

from __future__ import annotations

from pathlib import Path


def count_oom_kills() -> int:
    """Return a number that grows with each out-of-memory kill in this control group, else on this machine; 0 if unknown."""
    own_group = _own_group()
    for path in (own_group / "memory.events", Path("/sys/fs/cgroup/memory.events"), Path("/proc/vmstat")):
        count = _read_counter(path, "oom_kill")
        if count is not None:
            return count
    return 0


def _own_group() -> Path:
    try:
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            hierarchy, _, name = line.split(":", 2)
            if hierarchy == "0":
                return Path("/sys/fs/cgroup") / name.lstrip("/")
    except (OSError, ValueError):
        pass
    return Path("/sys/fs/cgroup")


def _read_counter(path: Path, name: str) -> int | None:
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            words = line.split()
            if words[:1] == [name]:
                return int(words[1])
    except (OSError, ValueError, IndexError):
        pass
    return None
