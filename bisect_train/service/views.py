"""What goes out: stored values as JSON for others. The question as stored holds secrets in full, so it is picked apart here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bisect_train.core.fingerprint import Fingerprint, RankRecord
from bisect_train.core.question import Question
from bisect_train.core.secrets import HIDDEN, is_secret_key, mask_command, mask_text
from bisect_train.report.standing import PHASES
from bisect_train.report.wire import clean_json
from bisect_train.report.words import say_ending
from bisect_train.service.live import LiveRun
from bisect_train.service.pages.contract import Opened
from bisect_train.service.settings import Settings
from bisect_train.store.contract import StoredEvent, StoredProbe
from bisect_train.store.queue_contract import QueueEntry
from bisect_train.verdict.divergence import first_divergence, step_rows

MAX_TEXT = 20_000
MAX_LISTED = 50
SIGNALS = (
    "loss", "grad_norm", "clip_norm", "lr", "param_norm", "step_s", "step_cpu_s", "step_cuda_s", "data_s", "rss_mib",
    "cuda_mib", "missing_grads", "moved",
)  # fmt: skip
"""What a fingerprint has one number of for each rank and step; `lr` is that of the first parameter group."""


def redact(value: Any, name: str = "") -> Any:
    """Return a value of an event without secrets: those under telling names, and logins in texts."""
    if isinstance(value, Mapping):
        return {str(key): redact(item, str(key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact(item, name) for item in value]
    if isinstance(value, str):
        return HIDDEN if value and name and is_secret_key(name, value) else mask_text(value)[:MAX_TEXT]
    return value


def event_view(event: StoredEvent) -> dict[str, Any]:
    """Return an event for a watcher: the config of a run and the whole report are to be asked for by themselves."""
    data = dict(event.data)
    if isinstance(data.get("spec"), dict):
        data["spec"] = {key: value for key, value in data["spec"].items() if key != "config"}
    data.pop("config", None)
    if event.kind == "finished":
        answer = data.pop("answer", None)
        data |= {name: answer.get(name) if isinstance(answer, dict) else None for name in ("status", "summary")}
    shown = clean_json(redact(data, ""))
    problem = {"problem": event.problem} if event.problem else {}
    return {"seq": event.seq, "kind": event.kind, "time_s": event.time_s, "data": shown, **problem}


def question_view(question: Question, settings: Settings) -> dict[str, Any]:
    """Return what was asked, as far as others may see it."""
    asked, limits = question.range, question.limits
    return {
        "kind": question.kind,
        "repository": repository_name(question.repo, settings),
        "good": list(asked.goods),
        "bad": asked.bad,
        "command": list(mask_command(question.command)),
        "rung": question.rung.name,
        "ladder": [rung.name for rung in question.ladder],
        "metric": {"name": question.metric.name, "better": question.metric.better, "unit": question.metric.unit},
        "criterion": question.criterion.value,
        "symptom": question.symptom,
        "min_effect": question.min_effect,
        "config": question.config_path,
        "limits": {
            "max_probes": limits.max_probes,
            "gpu_hours": limits.gpu_hours,
            "parallel": limits.parallel,
            "max_seeds": limits.max_seeds,
            "confidence": limits.confidence,
        },
    }


def repository_name(folder: str, settings: Settings) -> str:
    """Return the name of a repository for others: that of the list, else its last folder."""
    for name, path in settings.repositories:
        if str(path) == folder:
            return name
    return Path(folder).name


def entry_view(entry: QueueEntry | None) -> dict[str, Any] | None:
    """Return where a bisection is in the queue."""
    if entry is None:
        return None
    return {
        "state": entry.state.value,
        "user": entry.user,
        "submitted_s": entry.submitted_s,
        "started_s": entry.started_s,
        "ended_s": entry.ended_s,
        "num_starts": entry.num_starts,
        "reason": mask_text(entry.reason),
    }


def state_view(opened: Opened) -> dict[str, Any]:
    """Return where a bisection stands: phase, ends, belief over the changes, what each version showed."""
    plan, space = opened.plan, opened.space
    ranked = sorted(range(len(plan.posterior)), key=lambda idx: -plan.posterior[idx])[:MAX_LISTED]
    return clean_json(  # type: ignore[no-any-return]
        {
            "phase": plan.phase.value,
            "phase_words": PHASES[plan.phase],
            "num_probes": len(opened.state.probes),
            "num_changes": len(space.changes),
            "ends": {
                "status": plan.ends.status.value,
                "reason": plan.ends.reason,
                "gap": plan.ends.gap,
                "spread": plan.ends.spread,
            },
            "posterior": [round(value, 9) for value in plan.posterior],
            "most_probable": [change_view(opened, idx) for idx in ranked],
            "versions": [
                {
                    "version": version,
                    "verdict": evidence.verdict.value,
                    "nats": evidence.nats,
                    "num_runs": evidence.num_runs,
                    "reason": evidence.reason,
                }
                for version, evidence in sorted(plan.evidence.items())
            ],
            "not_read": sorted(idx + 1 for idx in plan.inert),
            "candidate": None if plan.candidate is None else change_view(opened, plan.candidate),
            "answer": None if plan.answer is None else plan.answer.status,
        }
    )


def change_view(opened: Opened, idx: int) -> dict[str, Any]:
    """Return a change: number from 1, kind, id, title, who and when, its probability once there is a belief."""
    change, posterior = opened.space.changes[idx], opened.plan.posterior
    return {
        "number": idx + 1,
        "kind": change.kind.value,
        "id": change.id,
        "title": mask_text(change.title),
        "detail": change.detail,
        "probability": posterior[idx] if idx < len(posterior) else None,
        "is_skipped": idx + 1 in opened.space.skipped,
    }


def live_view(run: LiveRun, *, with_curve: bool) -> dict[str, Any]:
    """Return a running probe, with its curve or only the last point of it."""
    data: dict[str, Any] = {
        "key": run.key,
        "seed_idx": run.seed_idx,
        "repeat": run.repeat,
        "phase": run.phase,
        "step": run.step,
        "loss": run.loss,
    }
    if with_curve:
        data |= {"steps": [step for step, _ in run.curve], "losses": [loss for _, loss in run.curve]}
    return clean_json(data)  # type: ignore[no-any-return]


def probe_view(probe: StoredProbe) -> dict[str, Any]:
    """Return what is known of a finished probe, without its curves."""
    result, spec = probe.result, dict(probe.spec)
    fingerprint = result.fingerprint
    ending = replace(fingerprint.ending, message=mask_text(fingerprint.ending.message))
    spec["config"] = mask_text(spec["config"]) if spec.get("config") else None
    return clean_json(  # type: ignore[no-any-return]
        {
            "key": probe.key,
            "bisection": probe.bisection_id,
            "spec": redact(spec, ""),
            "time_s": probe.time_s,
            "wall_s": result.wall_s,
            "node": result.node,
            "ending": {
                **redact(asdict(ending)),
                "kind": ending.kind.value,
                "words": say_ending(ending),
            },
            "facts": redact(dict(fingerprint.facts), ""),
            "ranks": [_rank_view(record) for record in fingerprint.ranks],
            "metrics": [{"name": series.name, "num": len(series.values)} for series in fingerprint.metrics],
            "warnings": redact(list(result.warnings)),
            "log_tail": mask_text(result.log_tail)[-MAX_TEXT:],
            "stacks": [{"name": name, "text": mask_text(text)[:MAX_TEXT]} for name, text in result.stacks[:MAX_LISTED]],
        }
    )


def _rank_view(record: RankRecord) -> dict[str, Any]:
    events = [{"name": event.name, "step": event.step, "data": redact(event.data, "")} for event in record.events[:MAX_LISTED]]
    return {"rank": record.rank, "num_steps": len(record.steps), "events": events}


def curves_view(
    fingerprint: Fingerprint, *, signals: tuple[str, ...], ranks: tuple[int, ...], max_points: int
) -> dict[str, Any]:
    """Return numbers per rank and step: `steps` and one list for each signal; every k-th step where there would be too many.

    Args:
        fingerprint: of a probe.
        signals: of `SIGNALS`.
        ranks: which ones; () for all.
        max_points: of each list, at least 2.
    """
    chosen = [record for record in fingerprint.ranks if not ranks or record.rank in ranks]
    curves = []
    for record in chosen:
        kept = thin(record.steps, max_points)
        values = {name: [number_of(getattr(step, name)) for step in kept] for name in signals}
        curves.append({"rank": record.rank, "num_steps": len(record.steps), "steps": [step.step for step in kept], **values})
    metrics = [
        {"name": series.name, "steps": list(thin(series.steps, max_points)), "values": list(thin(series.values, max_points))}
        for series in fingerprint.metrics
    ]
    return clean_json({"ranks": curves, "metrics": metrics})  # type: ignore[no-any-return]


def thin(values: Any, max_points: int) -> Any:
    """Return at most `max_points` of a sequence: every k-th, and the last one always."""
    every = -(-len(values) // max(1, max_points - 1)) if len(values) > max_points else 1
    kept = values[::every]
    return kept if not values or (len(values) - 1) % every == 0 else (*kept, values[-1])


def number_of(value: Any) -> Any:
    """Return the first of several values, else the value."""
    return (value[0] if value else None) if isinstance(value, (tuple, list)) else value


def compare_view(left: StoredProbe, right: StoredProbe, *, max_points: int) -> dict[str, Any]:
    """Return two probes step by step, and where they first differ."""
    one, other = left.result.fingerprint, right.result.fingerprint
    found = first_divergence(one, other)
    rows = step_rows(one, other)
    return clean_json(  # type: ignore[no-any-return]
        {
            "left": left.key,
            "right": right.key,
            "first_difference": redact({**asdict(found), "stage": found.stage.value}, "") if found else None,
            "num_steps": len(rows),
            "steps": [
                {
                    "step": row.step,
                    "loss": list(row.losses),
                    "loss_delta": row.loss_delta,
                    "grad_norm": list(row.grad_norms),
                    "lr": list(row.lrs),
                    "has_equal_params": row.has_equal_params,
                    "has_equal_batch": row.has_equal_batch,
                }
                for row in thin(rows, max_points)
            ],
        }
    )
