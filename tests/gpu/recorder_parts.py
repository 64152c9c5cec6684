"""What the recorder costs, whether it changes a bit, whether its figures of memory are right. Needs torch and nothing else."""

from __future__ import annotations

import os
import statistics
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.gpu.outcome import NO_CUDA, Outcome, Setting, skipped
from tests.gpu.training import Trained, Training, TrainingError, train

MAX_RATIO = {"small": 1.25, "medium": 1.03}
"""Of a step with the recorder to one without, of a program that reads its loss at each step. A step of the small model is a few
milliseconds of launches on a GPU, which is no training that anyone waits for."""
MAX_MEMORY_SHARE = 0.01
MAX_AT_ONCE = 4
MIB = 1 << 20


def cost_cases(device: str) -> list[Training]:
    """Return what is timed; on a cpu few steps, since that only rehearses."""
    steps = 60 if device == "cuda" else 10
    return [Training(device, size, steps=steps, compile=compiled) for compiled in (False, True) for size in ("small", "medium")]


def show_cost(setting: Setting) -> Outcome:
    """Time steps without and with the recorder by turns; the median of the rounds' ratios is what counts."""
    figures: dict[str, Any] = {"rounds": setting.rounds, "cases": {}}
    lines, is_fine = [], True
    for case in cost_cases(setting.device):
        if not setting.has_time:
            lines.append(f"{case.name}: out of time")
            continue
        figures["cases"][case.name] = found = measure_case(case, setting)
        limit = MAX_RATIO[case.size]
        is_met = found["reading_ratio"] <= limit or setting.device == "cpu"  # shared cores say nothing about a goal for a GPU
        is_fine &= is_met
        lines.append(
            f"{case.name} {found['step_ms']:.2f} ms, ratio {found['reading_ratio']:.3f} (limit {limit})"
            f", never reading its loss {found['free_ratio']:.3f}, self {found['self_ms']:.3f} ms"
        )
    return Outcome(is_fine, "; ".join(lines), figures)


def measure_case(case: Training, setting: Setting) -> dict[str, Any]:
    """Return times of one case: milliseconds and ratios, medians over the rounds, with all single ones."""
    if case.compile:
        train(case.without(steps=2), is_recorded=False, cache=setting.folder)  # fills the cache of compiled code
    pairs: list[tuple[Trained, Trained]] = []
    while len(pairs) < setting.rounds and (setting.has_time or not pairs):
        kinds = [False, True] if len(pairs) % 2 == 0 else [True, False]
        runs = {kind: train(case, is_recorded=kind, cache=setting.folder) for kind in kinds}
        pairs.append((runs[False], runs[True]))
    own = [line["self_s"] for _, run in pairs for line in run.steps[case.warm :]]
    result: dict[str, Any] = {"num_params": pairs[0][0].found["num_params"], "rounds": len(pairs)}
    for name in ("free", "reading"):
        ratios = [recorded.found[f"{name}_s"] / plain.found[f"{name}_s"] for plain, recorded in pairs]
        result[f"{name}_ratio"], result[f"{name}_ratios"] = statistics.median(ratios), ratios
        result[f"{name}_ms"] = [[1000 * run.found[f"{name}_s"] for run in pair] for pair in pairs]
    result["step_ms"] = statistics.median(pair[0] for pair in result["reading_ms"])
    result["self_ms"] = 1000 * statistics.median(own)
    return result


def same_cases(device: str) -> list[Training]:
    """Return what is compared bit by bit, deterministic algorithms asked for."""
    base = Training(device, "small", steps=12 if device == "cuda" else 3, warm=4, deterministic=True)
    amps = ("bfloat16", "float16") if device == "cuda" else ("bfloat16",)
    compiled = [base.without(compile=True)]
    return [
        base,
        *(base.without(amp=amp) for amp in amps),
        *compiled,
        *([base.without(size="medium")] if device == "cuda" else []),
    ]


def show_same_bits(setting: Setting) -> Outcome:
    """Compare parameters and losses of runs without the recorder, with it, and with checksums and triage at every step."""
    cases = same_cases(setting.device)
    closer = {"every_step": True, "triage": True}
    kinds: list[tuple[bool, dict[str, Any]]] = [(False, {}), (False, {}), (True, {}), (True, closer)]

    def digest_of(case: Training, kind: tuple[bool, dict[str, Any]]) -> str:
        if not setting.has_time:
            return ""
        is_recorded, settings = kind
        return str(train(case, is_recorded=is_recorded, cache=setting.folder, settings=settings).found["digest"])

    with ThreadPoolExecutor(max(1, min(MAX_AT_ONCE, (os.cpu_count() or 1) // 4))) as pool:  # no times are taken
        runs = {case.name: [pool.submit(digest_of, case, kind) for kind in kinds] for case in cases}
    digests = {name: [run.result() for run in found] for name, found in runs.items()}
    words = {name: _say_equal(found) for name, found in digests.items()}
    is_fine = "DIFFERENT" not in words.values() and "equal" in words.values()
    said = "; ".join(f"{name} {word}" for name, word in words.items())
    return Outcome(is_fine, said, {"plain, plain, recorded, recorded at every step": digests})


def _say_equal(digests: list[str]) -> str:
    """Return what four digests say: of two runs without the recorder and two with it."""
    if not all(digests):
        return "out of time"
    if digests[0] != digests[1]:
        return "does not repeat by itself"
    return "equal" if len(set(digests)) == 1 else "DIFFERENT"


def show_memory(setting: Setting) -> Outcome:
    """Compare the recorder's `cuda_mib` with what the program reads itself, and its peak with that of a run without."""
    if setting.device != "cuda":
        return skipped(NO_CUDA)
    case = Training("cuda", "medium", steps=4, warm=8)
    plain, recorded = (train(case, is_recorded=is_recorded, cache=setting.folder) for is_recorded in (False, True))
    own = [peak / MIB for peak in recorded.found["peaks"]]
    told = [line["cuda_mib"] for line in recorded.steps][: len(own)]
    if len(told) < len(own) or None in told:
        return Outcome(False, f"cuda_mib was told at {sum(value is not None for value in told)} of {len(own)} steps")
    gap = max(abs(one - other) for one, other in zip(told, own, strict=True))
    added = recorded.found["max_bytes"] / plain.found["max_bytes"] - 1.0
    figures = {"told_mib": told, "own_mib": own, "plain_mib": plain.found["max_bytes"] / MIB, "added_share": added}
    said = f"peak {own[-1]:.1f} MiB, cuda_mib {told[-1]:.1f} MiB (largest gap {gap:.2f} MiB), the recorder adds {added:+.2%}"
    return Outcome(gap <= 1.0 and added <= MAX_MEMORY_SHARE, said, figures)


def show_graph(setting: Setting) -> Outcome:
    """Capture a whole step, optimizer included, in a CUDA graph: with the recorder it must work and give the same bits."""
    if setting.device != "cuda":
        return skipped(NO_CUDA)
    case = Training("cuda", "small", steps=10, deterministic=True, graph=True)
    plain = train(case, is_recorded=False, cache=setting.folder).found["digest"]
    try:
        recorded = train(case, is_recorded=True, cache=setting.folder).found["digest"]
    except TrainingError as error:
        last = str(error).strip().splitlines()[-1]
        return Outcome(False, f"works without the recorder and fails with it: {last}", {"error": str(error)})
    said = "a captured step gives the same bits" if plain == recorded else "a captured step gives other bits"
    return Outcome(plain == recorded, said, {"plain": plain, "recorded": recorded})
