"""Why a run did not start: environment, resources, imports, config, checkpoint, ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bisect_train.core.fingerprint import EndingKind, Event
from bisect_train.core.secrets import mask_line
from bisect_train.verdict.triage.asked import Look
from bisect_train.verdict.triage.failure_text import class_of_start, outside_import
from bisect_train.verdict.triage.finding import Category, Evidence, Finding
from bisect_train.verdict.triage.run_view import RunView, names, number
from bisect_train.verdict.triage.symptoms import CHOSEN, find, say_ranks

MISFIT_SHARE = 0.5  # chosen, not measured: of a model's parameters; a new head misses a few, a wrong prefix misses all
_UNCOMPARED = frozenset({"executable", "channel", "recorder", "environment", "world_size"})


def find_outside_imports(look: Look) -> Iterator[Finding]:
    """Tell of tracked modules that came from outside the checkout."""
    found: dict[str, tuple[str, int]] = {}
    for rank, events in look.run.events("imports").items():
        for event in events:
            outside = event.data.get("outside")
            if isinstance(outside, dict):
                found.update({str(module): (str(path), rank) for module, path in outside.items()})
    said = outside_import(look.run.fingerprint.ending.message)
    if said is not None and not found:
        found[said[0]] = (said[1], 0)
    if found:
        module, (path, _) = sorted(found.items())[0]
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        evidence = [Evidence(name, where, "in the checkout", rank=rank) for name, (where, rank) in sorted(found.items())[:5]]
        yield find(
            "imported_from_outside", f"{module} was imported from {path}{more}, not from the checkout", evidence=evidence
        )


def find_start_failure(look: Look) -> Iterator[Finding]:
    """Name what kept the program from its first step, where its message says so."""
    ending = look.run.fingerprint.ending
    if look.run.has_stepped or ending.kind not in (EndingKind.CANNOT_START, EndingKind.CRASHED):
        return
    texts = [ending.message, *(text for _, text in exceptions_of(look.run))]
    kinds = [class_of_start(text) for text in texts]
    symptom = next((kind for kind in kinds if kind != "crash"), "crash")
    if symptom == "crash" and ending.kind is EndingKind.CRASHED:
        symptom = "config_error" if ending.exit_status == 2 else "crash"  # 2: how argparse refuses arguments
    if outside_import(ending.message) is not None or (symptom == "crash" and ending.kind is EndingKind.CRASHED):
        return  # told by another rule
    symptom = "config_error" if symptom == "crash" else symptom
    ranks = [rank for rank, text in exceptions_of(look.run) if class_of_start(text) == symptom]
    evidence = [Evidence("message", _first_line(ending.message))]
    evidence += [Evidence("missing module", ending.missing_module)] if ending.missing_module else []
    yield find(symptom, f"it never made a step: {_first_line(ending.message)}", ranks=ranks, evidence=evidence)


def find_environment_mismatch(look: Look) -> Iterator[Finding]:
    """Compare versions between ranks, and with the baseline where the run failed."""
    versions = {rank: str(data.get("version")) for rank, data in look.run.first_data("torch_imported").items()}
    if len(set(versions.values())) > 1:
        evidence = [Evidence("torch", version, "equal on all ranks", rank=rank) for rank, version in versions.items()]
        found = find("environment_mismatch", "ranks run with different versions of torch", ranks=versions, evidence=evidence)
        yield _where_it_showed(found, look)
    if look.base is None or look.run.fingerprint.ending.is_healthy:
        return
    mine, theirs = look.run.facts, look.base.facts
    differing = sorted(name for name in (mine.keys() & theirs.keys()) - _UNCOMPARED if mine[name] != theirs[name])
    if differing:
        said = ", ".join(f"{name} {mine[name]} against {theirs[name]}" for name in differing)
        evidence = [Evidence(name, mine[name], theirs[name], "the baseline") for name in differing]
        summary = f"it failed with other versions than the baseline: {said}"
        yield _where_it_showed(find("environment_mismatch", summary, evidence=evidence, needs_baseline=True), look)


def _where_it_showed(finding: Finding, look: Look) -> Finding:
    """Return the finding with its category: a run that stepped did start, and its versions are no more than a circumstance."""
    if not look.run.has_stepped:
        return finding
    is_healthy = look.run.fingerprint.ending.is_healthy
    return replace(finding, category=Category.SILENT_DISTRIBUTED if is_healthy else Category.STOPPED)


def find_missing_rank(look: Look) -> Iterator[Finding]:
    """Tell which ranks of a failed run left no record at all."""
    run = look.run
    if run.fingerprint.ending.is_healthy or not run.ranks:
        return
    said = run.facts.get("world_size", "")
    expected = max(run.world_size, 0 if said.isdigit() else look.asked.ranks)
    missing = sorted(set(range(expected)) - set(run.ranks))
    if missing:
        evidence = [Evidence("ranks that started", str(len(run.ranks)), f"{expected} ranks", "number of ranks of the launch")]
        summary = (
            f"{say_ranks(missing)} of {expected} never started: the others wait for {'it' if len(missing) == 1 else 'them'}"
        )
        yield find("missing_rank", summary, ranks=missing, evidence=evidence)


def find_checkpoint_misfit(look: Look) -> Iterator[Finding]:
    """Tell of keys that a loaded state dict lacked or had too many, where loading was not strict.

    Programs load partial checkpoints on purpose, so it is a finding against a baseline that loads better, or where most of
    the model's parameters were not in the checkpoint.
    """
    for rank, events in sorted(look.run.events("checkpoint_loaded").items()):
        misfits = [event.data for event in events if _misfit(event.data) > 0]
        base_worst = max((_misfit(event.data) for event in _loads(look.base, rank)), default=0.0)
        worst = max(misfits, key=_misfit, default=None)
        if worst is None:
            continue
        total = max((number(data.get("num")) or 0.0 for data in look.run.first_data("gradients").values()), default=0.0)
        is_most = total > 0 and (number(worst.get("missing")) or 0.0) >= MISFIT_SHARE * total
        is_worse = look.base is not None and _misfit(worst) > base_worst
        if is_worse or (is_most and look.base is None):
            yield _misfit_finding(worst, rank, base_worst if is_worse else None)
            return


def _misfit_finding(data: dict[str, object], rank: int, base_worst: float | None) -> Finding:
    missing, unexpected = names(data.get("missing_names")), names(data.get("unexpected_names"))
    limit, source = f"{MISFIT_SHARE:.0%} of the parameters", CHOSEN
    if base_worst is not None:
        limit, source = f"{base_worst:.0f} keys", "the baseline"
    evidence = [
        Evidence("missing keys", _count_and_names(data.get("missing"), missing), limit, source, rank),
        Evidence("unexpected keys", _count_and_names(data.get("unexpected"), unexpected), limit, source, rank),
    ]
    lacking, extra = data.get("missing") or 0, data.get("unexpected") or 0
    summary = f"a checkpoint was loaded that lacks {lacking} keys and has {extra} unexpected ones"
    return find("checkpoint_does_not_fit", summary, ranks=(rank,), evidence=evidence, needs_baseline=base_worst is not None)


def _misfit(data: dict[str, object]) -> float:
    return (number(data.get("missing")) or 0.0) + (number(data.get("unexpected")) or 0.0)


def _loads(base: RunView | None, rank: int) -> list[Event]:
    return list(base.events("checkpoint_loaded").get(rank, ())) if base is not None else []


def _count_and_names(count: object, shown: list[str]) -> str:
    return f"{number(count) or 0.0:.0f}" + (f" ({', '.join(shown)})" if shown else "")


def exceptions_of(run: RunView) -> list[tuple[int, str]]:
    """Return (rank, `type: message`) of each exception that ended a rank."""
    return [
        (rank, f"{event.data.get('exc_type', '')}: {event.data.get('message', '')}")
        for rank, events in run.events("exception").items()
        for event in events
    ]


def _first_line(text: str) -> str:
    return mask_line(next((line.strip() for line in text.splitlines() if line.strip()), "no message"))[:300]
