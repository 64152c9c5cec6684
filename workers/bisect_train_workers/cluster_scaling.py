"""Asking a cluster that starts nodes by itself for room, and giving it back.

Probes go to nodes that live, so Ray's autoscaler never sees them wait: what is wanted is asked for in words, and stays asked
for until it is given back. Whether there is an autoscaler is seen by the kinds of its nodes: where none is, Ray makes up one
kind for each node.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable
from typing import Any

import ray
from ray.exceptions import RayError

from bisect_train_workers.placement import Resources

_MADE_UP = re.compile(r"node_[0-9a-f]{40,}")
_STATUS = "__autoscaling_status"
_FIRST_STATUS_S = 10.0
"""A cluster that was started a moment ago says nothing yet of its kinds of nodes, seconds."""


def can_scale() -> bool:
    """Return whether the cluster that this process has joined starts nodes by itself, as far as it says so."""
    try:
        from ray.autoscaler.v2.utils import is_autoscaler_v2

        kinds = _new_kinds() if is_autoscaler_v2() else _old_kinds()
    except (ImportError, AttributeError, AssertionError, RayError, RuntimeError, ValueError, OSError):  # a Ray without them
        return False
    return is_scaled(kinds)


def is_scaled(kinds: Iterable[str]) -> bool:
    """Return whether somebody chose one of these kinds of nodes. Pure."""
    return any(kind and not _MADE_UP.fullmatch(kind) for kind in kinds)


def ask_for(wanted: Resources, num: int) -> None:
    """Ask for room for so many probes; 0 gives back what was asked for."""
    from ray.autoscaler.sdk import request_resources

    request_resources(bundles=[_bundle(wanted)] * num)


def _bundle(wanted: Resources) -> dict[str, float]:
    """Return what one probe takes as the autoscaler takes it: whole numbers are integers there."""
    return {name: int(amount) if amount == int(amount) else amount for name, amount in wanted.items()}


def _old_kinds() -> list[str]:
    from ray.experimental.internal_kv import _internal_kv_get

    deadline = time.monotonic() + _FIRST_STATUS_S
    while not (raw := _internal_kv_get(_STATUS)) and time.monotonic() < deadline:
        time.sleep(0.5)
    report: dict[str, Any] = json.loads(raw).get("autoscaler_report") or {} if raw else {}
    named = (report.get("node_type_mapping") or {}).values()
    return [*(report.get("active_nodes") or {}), *(report.get("idle_nodes") or {}), *named]


def _new_kinds() -> list[str]:
    from ray.autoscaler.v2.sdk import get_cluster_status

    status = get_cluster_status(ray.get_runtime_context().gcs_address)
    return [node.ray_node_type_name for node in (*status.active_nodes, *status.idle_nodes)]
