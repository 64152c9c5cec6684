"""The environment that a probe's program sees.

It is the worker's own, minus what Ray and this tool added, plus what makes a run repeat and keeps its traces private.
`XDG_CACHE_HOME` and `HF_HOME` are deliberately left alone: downloaded weights and data sets live there, and hiding
them would make offline programs fail. A cache there that poisons evidence is named in the recipe's `private:`.
`PYTHONPYCACHEPREFIX` goes, since byte code kept outside the checkout could be that of another commit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from bisect_train.core.probe import ProbeSpec, RunSettings
from bisect_train_workers.command import SEED_STRIDE
from bisect_train_workers.node import make_folder

ADDRESS_VARIABLE = "BISECT_TRAIN_NODE_ADDRESS"
"""Set by a probe's task: where other nodes of the cluster reach this one."""

_LEFT_OUT = ("RAY_", "BISECT_TRAIN_", "GIT_")
_LEFT_OUT_NAMES = frozenset(
    ["PYTHONPYCACHEPREFIX", "PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONBREAKPOINT", "OLDPWD", "SPT_NOENV"]  # the last is Ray's
)
RAY_CODE = "/runtime_resources/"
"""In the paths that Ray adds to PYTHONPATH for our own code."""
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
_PRIVATE_CACHES = {
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "TORCH_EXTENSIONS_DIR": "extensions",
    "MPLCONFIGDIR": "matplotlib",
}


@dataclass(frozen=True, slots=True)
class ProbeFolders:
    """Where things of one probe lie on the node; all absolute.

    Attributes:
        base: the probe's private folder.
        checkout: working folder of the program.
        tmp: for TMPDIR, short enough for sockets.
    """

    base: Path
    checkout: Path
    tmp: Path

    @property
    def recorder(self) -> Path:
        """The copy of the recorder that goes on PYTHONPATH."""
        return self.base / "recorder"

    @property
    def records(self) -> Path:
        """Where the recorder writes."""
        return self.base / "records"

    @property
    def out(self) -> Path:
        """What `{out}` stands for."""
        return self.base / "out"

    @property
    def log(self) -> Path:
        """The program's output."""
        return self.base / "program.log"


def program_environment(
    spec: ProbeSpec,
    settings: RunSettings,
    folders: ProbeFolders,
    *,
    port: int,
    base: Mapping[str, str],
    overlay: Path | None = None,
    address: str = "",
) -> dict[str, str]:
    """Return the environment of a probe's program.

    Args:
        spec: variant (its own variables win over ours, except for PYTHONPATH's first entry) and seed index.
        settings: threads, private folders, interpreter.
        folders: of the probe.
        port: for MASTER_PORT.
        base: the worker's environment.
        overlay: folder of packages that come before the inherited ones, or None.
        address: for MASTER_ADDR, where ranks run on several nodes; "" leaves it to whoever starts them.
    """
    env = clean_environment(base)
    env.update({name: str(settings.threads) for name in _THREAD_VARIABLES})
    env.update(
        MASTER_PORT=str(port),
        PYTHONHASHSEED=hash_seed(spec.seed_idx),
        PYTHONDONTWRITEBYTECODE="1",
        PYTHONUNBUFFERED="1",
        PWD=str(folders.checkout),
        TMPDIR=str(folders.tmp),
    )
    if address:
        env.update(MASTER_ADDR=address, **_own_interface(env, base))
    if settings.gpus == 0:
        env["CUDA_VISIBLE_DEVICES"] = ""
    env.setdefault("WANDB_MODE", "offline")  # a probe of an old commit must not upload runs
    caches = {**_PRIVATE_CACHES, **{name: f"private-{name}" for name in settings.private}}
    for name, folder in caches.items():
        env[name] = str(make_folder(folders.base / "caches" / folder))
    env.update(spec.variant.env)
    env.update(settings.debug_env)  # of a second run that looks closer
    env["PYTHONPATH"] = _python_path(env.get("PYTHONPATH", ""), settings.redirect_from, folders, overlay=overlay)
    env["PATH"] = _program_path(env.get("PATH", os.defpath), settings.python, overlay=overlay)
    return env


def _own_interface(env: Mapping[str, str], base: Mapping[str, str]) -> dict[str, str]:
    """Return the network interface that gloo should use: it would take the one of the host's name, often the loopback."""
    address = base.get(ADDRESS_VARIABLE, "")
    if "GLOO_SOCKET_IFNAME" in env or not address:
        return {}
    for name, places in psutil.net_if_addrs().items():
        if any(place.address == address for place in places):
            return {"GLOO_SOCKET_IFNAME": name}
    return {}


def hash_seed(seed_idx: int) -> str:
    """Return PYTHONHASHSEED of a seed index."""
    return str(seed_idx * SEED_STRIDE % 2**32)


def without_recorder(env: Mapping[str, str], folders: ProbeFolders) -> dict[str, str]:
    """Return a program's environment for a command that must not be recorded or stopped (setup, judge)."""
    entries = [entry for entry in env["PYTHONPATH"].split(os.pathsep) if entry != str(folders.recorder)]
    kept = {name: value for name, value in env.items() if name != "PYTHONPATH"}
    return {**kept, "PYTHONPATH": os.pathsep.join(entries)} if entries else kept


def clean_environment(base: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without what Ray, this tool or an outer git put into it."""
    return {
        name: value
        for name, value in base.items()
        if not name.startswith(_LEFT_OUT) and name not in _LEFT_OUT_NAMES and not name.startswith("__RAY")
    }


def _python_path(given: str, redirect_from: str, folders: ProbeFolders, *, overlay: Path | None) -> str:
    """Return PYTHONPATH: recorder, overlay, then what was given; entries in the user's repository point to the checkout."""
    kept = [entry for entry in given.split(os.pathsep) if entry and RAY_CODE not in entry]
    entries = [_redirect(entry, redirect_from, folders.checkout) for entry in kept]
    return os.pathsep.join([str(folders.recorder), *([str(overlay)] if overlay else []), *entries])


def _redirect(entry: str, redirect_from: str, checkout: Path) -> str:
    if not redirect_from or not Path(entry).is_absolute() or "site-packages" in Path(entry).parts:
        return entry
    for source, path in ((redirect_from, entry), (os.path.realpath(redirect_from), os.path.realpath(entry))):
        if Path(path).is_relative_to(source):
            return str(checkout / Path(path).relative_to(source))
    return entry


def _program_path(given: str, python: str, *, overlay: Path | None) -> str:
    """Return PATH with the caller's interpreter's folder first, so that `torchrun` and scripts find it too.

    Programs of laid packages come before those of the inherited ones.
    """
    folder = str(Path(python).parent)
    first = [str(overlay / "bin"), folder] if overlay and (overlay / "bin").is_dir() else [folder]
    return os.pathsep.join([*first, *(entry for entry in given.split(os.pathsep) if entry != folder)])
