"""How a run ended before its time: crash, signal, memory, and hangs, with where each rank stood.

A hang is what the worker calls one (no step for half of the time limit), unless no process waits for anything: a program that
compiles or imports for long is slow. Torch's own timeouts end a hang as an exception; they are told as the hang that they are.
"""

from __future__ import annotations

from collections.abc import Iterator

from bisect_train.core.fingerprint import EndingKind
from bisect_train.core.secrets import mask_line
from bisect_train.verdict.triage.asked import Look
from bisect_train.verdict.triage.failure_text import (
    allocation_of,
    class_of_start,
    is_collective_timeout,
    is_init_timeout,
    is_peer_gone,
    root_cause_of,
)
from bisect_train.verdict.triage.finding import Evidence, Finding
from bisect_train.verdict.triage.start import exceptions_of
from bisect_train.verdict.triage.symptoms import find, say_ranks
from bisect_train.verdict.triage.waits import Wait, read_waits

HANG_SOURCE = "no step for half of the time limit"


def find_timeout(look: Look) -> Iterator[Finding]:
    """Tell a hang from a slow run, and say where each rank stood."""
    ending = look.run.fingerprint.ending
    if ending.kind is not EndingKind.TIMEOUT:
        return
    waits = read_waits(look.run.result.stacks)
    is_idle = bool(waits) and not any(wait.is_waiting for wait in waits)
    if ending.signature == "timeout: slow" or (is_idle and any(wait.is_preparing for wait in waits)):
        made = f"made {_num_steps(look)} steps in {look.asked.timeout_s:g} s" if look.run.has_stepped else _say_preparing(waits)
        yield find("slow_not_hung", f"it {made}; it did not hang", evidence=_where(look, waits), step=_next_step(look))
        return
    yield _hang(look, waits, said=ending.message)


def _hang(look: Look, waits: tuple[Wait, ...], *, said: str) -> Finding:
    symptom = _name_hang(look, waits)
    ranks = [wait.rank for wait in waits if wait.is_waiting]
    told = _say_waits(look, waits) or said
    done = "all steps are done" if symptom == "hang_at_end" else f"{_num_steps(look)} steps were made"
    prefix = done if look.run.has_stepped else "it never made a step"
    evidence = [Evidence("time without a step", said or "too long", f"limit {look.asked.timeout_s:g} s", HANG_SOURCE)]
    evidence += _where(look, waits) + _calls(look)
    return find(symptom, f"{prefix}, then nothing: {told}", ranks=ranks, step=_next_step(look), evidence=evidence)


def _name_hang(look: Look, waits: tuple[Wait, ...]) -> str:
    run = look.run
    if run.has_stepped:
        return "hang_at_end" if _is_done(look, waits) else "hang"
    begun, made = run.events("process_group_begin"), run.events("process_group")
    if any(wait.is_in_init for wait in waits) or set(begun) - set(made):
        return "hang_in_init"
    if run.world_size > 1 and (any(wait.is_waiting for wait in waits) or (made and not waits)):
        return "hang_in_first_collective"
    return "hang"


def _is_done(look: Look, waits: tuple[Wait, ...]) -> bool:
    """Return whether every rank made its steps: as many as asked for or as in the baseline, or a rank has left already."""
    made = {rank: len(steps) for rank, steps in look.run.steps.items()}
    if look.asked.steps is not None:
        return min(made.values()) >= look.asked.steps
    if look.base is not None and look.base.has_stepped and look.base.fingerprint.ending.is_healthy:
        return min(made.values()) >= min(len(steps) for steps in look.base.steps.values())
    has_left = any(event.data.get("code") in (0, None) for events in look.run.events("exit").values() for event in events)
    return len(set(made.values())) == 1 and (has_left or any(wait.call == "destroy_process_group" for wait in waits))


def _where(look: Look, waits: tuple[Wait, ...]) -> list[Evidence]:
    found = [Evidence("waits in" if wait.is_waiting else "is in", wait.text, rank=wait.rank) for wait in waits]
    shown = {wait.rank for wait in waits}
    if shown:
        missing = sorted(set(range(look.run.world_size)) - shown)
        found += [Evidence("is in", _absence(look, rank), rank=rank) for rank in missing]
    return found


def _absence(look: Look, rank: int) -> str:
    if rank not in look.run.steps:
        return "it never started"
    return "it has ended" if rank in look.run.events("exit") else "it left no stack"


def _calls(look: Look) -> list[Evidence]:
    """Return the last collective that each rank entered."""
    found = []
    for rank, events in sorted(look.run.events("collective").items()):
        data = events[-1].data
        text = f"{data.get('op')} {data.get('shape') or ''} {data.get('dtype') or ''}".strip()
        found.append(Evidence("last collective entered", f"call {data.get('idx')}: {text}", rank=rank))
    return found


def _say_waits(look: Look, waits: tuple[Wait, ...]) -> str:
    parts = [f"rank {wait.rank} {'waits in' if wait.is_waiting else 'is in'} {wait.text}" for wait in waits]
    if waits:
        absent = sorted(set(range(look.run.world_size)) - {wait.rank for wait in waits})
        parts += [f"rank {rank}: {_absence(look, rank)}" for rank in absent]
    return ", ".join(parts)


def _say_preparing(waits: tuple[Wait, ...]) -> str:
    return f"did not come to its first step: no rank waits for another, {waits[0].text}" if waits else "made no step in time"


def find_failure(look: Look) -> Iterator[Finding]:
    """Name crashes, signals and failed allocations, and the rank that went first."""
    run, ending = look.run, look.run.fingerprint.ending
    if ending.kind is EndingKind.OUT_OF_MEMORY:
        yield _out_of_memory(look)
        return
    if ending.kind is EndingKind.KILLED:
        yield from _rank_died(look)
        yield find("killed", f"{_after(look)}: {ending.message}", step=_next_step(look), evidence=[_signal(look)])
        return
    if ending.kind is not EndingKind.CRASHED:
        return
    texts = [ending.message, *(text for _, text in exceptions_of(run))]
    if not run.has_stepped and any(map(is_init_timeout, texts)):
        yield _hang_by_exception("hang_in_init", look)
    elif any(map(is_collective_timeout, texts)):
        yield _hang_by_exception("hang" if run.has_stepped else "hang_in_first_collective", look)
    elif is_peer_gone(ending.message):
        yield from _rank_died(look)
    elif run.has_stepped or not _is_told_by_start(look, texts):
        yield from _rank_died(look)
        yield _crash(look)


def _is_told_by_start(look: Look, texts: list[str]) -> bool:
    return look.run.fingerprint.ending.exit_status == 2 or any(class_of_start(text) != "crash" for text in texts)


def _hang_by_exception(symptom: str, look: Look) -> Finding:
    ranks = [rank for rank, text in exceptions_of(look.run) if is_init_timeout(text) or is_collective_timeout(text)]
    said = look.run.fingerprint.ending.message.splitlines()[:1]
    evidence = [Evidence("message", " ".join(said)[:300]), *_calls(look)]
    summary = f"{_after(look)}: a rank gave up waiting for the others"
    return find(symptom, summary, ranks=ranks, step=_next_step(look), evidence=evidence)


def _crash(look: Look) -> Finding:
    ending = look.run.fingerprint.ending
    ranks = [rank for rank, text in exceptions_of(look.run) if not is_peer_gone(text)]
    evidence = [Evidence("signature", mask_line(ending.signature) or f"exit status {ending.exit_status}")]
    return find("crash", f"{_after(look)}: {_short(ending.message)}", ranks=ranks, step=_next_step(look), evidence=evidence)


def _rank_died(look: Look) -> Iterator[Finding]:
    """Tell which of several ranks went first: as the launcher says, else the one that left no exception of its own."""
    if look.run.world_size < 2:
        return
    cause = root_cause_of(look.run.result.log_tail)
    own = {rank for rank, text in exceptions_of(look.run) if not is_peer_gone(text)}
    suffering = {rank for rank, text in exceptions_of(look.run) if is_peer_gone(text)}
    silent = set(look.run.ranks) - own - suffering - set(look.run.events("exit"))
    first = {cause[0]} if cause else own or (silent if suffering else set())
    is_signal = cause is not None and cause[1] < 0
    if not first or (own & first and not suffering and not is_signal):
        return
    evidence = [Evidence("steps made", str(len(look.run.steps.get(rank, {}))), rank=rank) for rank in look.run.ranks]
    if cause:
        evidence.append(Evidence("exit status, as the launcher says", str(cause[1]), rank=cause[0]))
    evidence += [Evidence("message", _short(text), rank=rank) for rank, text in exceptions_of(look.run)]
    yield find("rank_died", f"{say_ranks(first)} died, {_after(look)}", ranks=first, step=_next_step(look), evidence=evidence)


def _out_of_memory(look: Look) -> Finding:
    run, ending = look.run, look.run.fingerprint.ending
    texts = [ending.message, *(text for _, text in exceptions_of(run)), run.result.log_tail]
    size = allocation_of(texts)
    ranks = [rank for rank, text in exceptions_of(run) if "memory" in text.lower()]
    what = f"tried to allocate {size}" if size else _short(ending.message)
    evidence = [Evidence("allocation", size)] if size else []
    for rank, steps in sorted(run.steps.items()):
        last = steps[max(steps)] if steps else None
        for name, value in (("CUDA memory", last and last.cuda_mib), ("resident memory", last and last.rss_mib)):
            if value is not None:
                evidence.append(Evidence(f"{name} at the last step", f"{value:.0f} MiB", rank=rank))
    return find(
        "out_of_memory", f"{_after(look)} it ran out of memory: {what}", ranks=ranks, step=_next_step(look), evidence=evidence
    )


def _signal(look: Look) -> Evidence:
    ending = look.run.fingerprint.ending
    return Evidence("signal", str(ending.signal or ending.signature or "unknown"))


def _num_steps(look: Look) -> int:
    return min((len(steps) for steps in look.run.steps.values()), default=0)


def _next_step(look: Look) -> int | None:
    """Return the step in progress: after the last one that all ranks made; None where there was none."""
    if not look.run.has_stepped:
        return None
    return min(max(steps, default=-1) for steps in look.run.steps.values()) + 1


def _after(look: Look) -> str:
    if not look.run.has_stepped:
        return "before the first step"
    return f"after {_num_steps(look)} step{'s' if _num_steps(look) != 1 else ''}"


def _short(text: str) -> str:
    return mask_line(next((line.strip() for line in text.splitlines() if line.strip()), "no message"))[:200]
