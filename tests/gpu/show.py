"""Shows on one machine, in minutes, what the recorder and probes do on a GPU: `python -m tests.gpu.show [--device cpu]`.

Each part prints one line, PASS, FAIL or skipped, with its figures, and writes a JSON file; one that fails stops no other. With
`--device cpu` all of it is rehearsed: what needs CUDA says so. From a bare machine with torch, the parts on the recorder need
nothing else; those with probes need the package's dependencies (Ray only if it is there) and git. The package need not be
installed. Exit status: 0 no part failed, 1 one did.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.gpu.outcome import NO_CUDA, Outcome, Setting, has_cuda, skipped

PARTS = {
    "same_bits": "tests.gpu.recorder_parts:show_same_bits",
    "memory": "tests.gpu.recorder_parts:show_memory",
    "graph": "tests.gpu.recorder_parts:show_graph",
    "out_of_memory": "tests.gpu.probe_parts:show_out_of_memory",
    "bisection": "tests.gpu.probe_parts:show_bisection",
    "cost": "tests.gpu.recorder_parts:show_cost",
}
"""In this order: the one whose runs can be cut short comes last."""
MAX_SHARE = 0.35
"""Of the time for all that one part may begin runs in, while others follow."""
LIMIT_S = 540.0
_ROOT = Path(__file__).resolve().parents[2]
Part = Callable[[Setting], Outcome]


def load_part(place: str) -> Part:
    """Return a part's function; only its own imports are needed for it."""
    module, _, name = place.partition(":")
    found: Part = getattr(importlib.import_module(module), name)
    return found


def run_part(name: str, part: Callable[[], Part], setting: Setting) -> Outcome:
    """Run one part, whatever happens in it."""
    if not setting.has_time:
        return skipped("out of time")
    try:
        setting.folder.mkdir(parents=True)
        return part()(setting)
    except ModuleNotFoundError as error:
        return skipped(f"{error.name} is not installed")
    except Exception as error:  # a part must not stop the others
        last = str(error).strip().splitlines() or [""]
        return Outcome(False, f"{type(error).__name__}: {last[-1][:300]}", {"traceback": traceback.format_exc()})


def show(names: Sequence[str], setting: Setting, out: Path) -> bool:
    """Run parts one after the other, print and write what they say; return whether none failed."""
    out.mkdir(parents=True, exist_ok=True)
    is_fine = True
    for name in names:
        started = time.monotonic()
        left_s = setting.deadline - started
        share = 1.0 if name == names[-1] else MAX_SHARE
        own = Setting(setting.device, setting.folder / name, setting.rounds, started + share * left_s)
        outcome = run_part(name, lambda name=name: load_part(PARTS[name]), own)  # type: ignore[misc]
        wall_s = time.monotonic() - started
        print(f"{outcome.word:<8}{name:<14}{wall_s:>6.1f} s  {outcome.said}", flush=True)
        text = json.dumps({"part": name, "device": setting.device, "wall_s": wall_s, **asdict(outcome)}, indent=1, default=str)
        (out / f"{name}.json").write_text(text + "\n")
        is_fine &= outcome.is_fine is not False
    return is_fine


def describe_machine(device: str) -> dict[str, Any]:
    """Return what it ran on."""
    found: dict[str, Any] = {"python": sys.version.split()[0], "device": device}
    try:
        import torch
    except ImportError:
        return found
    found |= {"torch": str(torch.__version__), "cuda": torch.version.cuda}
    if has_cuda():
        found["gpu"] = torch.cuda.get_device_name()
    return found


def main() -> int:
    """Read the options and show."""
    parser = argparse.ArgumentParser(description="What the recorder and probes do on a GPU.")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu rehearses (default: cuda)")
    parser.add_argument("--out", type=Path, default=Path("gpu-show"), help="folder for JSON files (default: gpu-show)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each kind where times are compared (default: 3)")
    parser.add_argument("--limit-s", type=float, default=LIMIT_S, help="no run begins after so many seconds (default: 540)")
    parser.add_argument("--parts", nargs="+", choices=tuple(PARTS), default=tuple(PARTS), help="only these")
    options = parser.parse_args()
    sys.path[:0] = [str(_ROOT), str(_ROOT / "workers")]  # the package need not be installed
    machine = describe_machine(options.device)
    print(" · ".join(f"{name} {value}" for name, value in machine.items()), flush=True)
    if options.device == "cuda" and not has_cuda():
        print(f"skipped everything: {NO_CUDA}; `--device cpu` rehearses")
        return 0
    with tempfile.TemporaryDirectory(prefix="gpu-show-", ignore_cleanup_errors=True) as scratch:
        setting = Setting(options.device, Path(scratch), options.rounds, time.monotonic() + options.limit_s)
        is_fine = show(options.parts, setting, options.out)
    (options.out / "machine.json").write_text(json.dumps(machine, indent=1) + "\n")
    return 0 if is_fine else 1


if __name__ == "__main__":
    sys.exit(main())
