"""The step that is being recorded: collects what happens and becomes one line.

Values stay where they are (numbers on the host, tensors on devices) until `resolve`, which makes
the step's one copy to the host.
"""

from __future__ import annotations

import functools
import json
import math
from typing import Any, Dict, List, Optional

from .hashes import BatchHasher
from .readout import Number, read_numbers
from .tensor_sums import HASH_MODULUS


def dtype_names(dtypes: Any) -> List[str]:
    """Return the sorted names of torch dtypes without the prefix `torch.`."""
    return sorted([str(dtype).rsplit(".", 1)[-1] for dtype in dtypes])


class OpenStep:
    """Everything seen since the step before closed."""

    def __init__(self, torch: Any, step_idx: int) -> None:
        """Start empty."""
        self.torch = torch
        self.step_idx = step_idx
        self.losses: List[Number] = []
        self.clip_norms: List[Number] = []
        self.fires: List[Any] = []
        self.num_real_fires = 0
        self.is_skipped = False
        self.autocast: Optional[str] = None
        self.batch = BatchHasher(torch)
        self.ended_at: Optional[float] = None
        self.t: Optional[float] = None
        self.step_s: Optional[float] = None
        self.self_s = 0.0
        self.checks: Dict[str, Any] = {}
        self.param_sq_parts: List[Number] = []
        self.param_bits: List[Number] = []

    def resolve(self) -> Dict[str, Any]:
        """Return the line's values that come from tensors and numbers, in the contract's order."""
        fires = self.fires
        self._bring_to_host()
        record = self._loss_part(_total_square(fires))
        record["lr"] = fires[0].lrs if len(fires) == 1 else [lr for fire in fires for lr in fire.lrs]
        record["batch_hash"] = None if self.batch.is_empty else self.batch.hexdigest()
        if self.param_bits:
            record["param_norm"] = math.sqrt(sum(self.param_sq_parts))
            record["param_hash"] = "%016x" % (sum(self.param_bits) % HASH_MODULUS)
            record.update(self.checks)
        return record

    def _bring_to_host(self) -> None:
        """Replace every pending tensor by its number: the step's one copy."""
        groups = [self.losses, self.clip_norms, self.batch.pending, self.param_sq_parts, self.param_bits]
        for fire in self.fires:
            groups += [fire.lrs, fire.grad_sq_parts, fire.scaling]
        tensor_class = self.torch.Tensor
        pending = [(group, idx) for group in groups for idx, n in enumerate(group) if isinstance(n, tensor_class)]
        if pending:
            values = read_numbers(self.torch, [group[idx] for group, idx in pending])
            for (group, idx), value in zip(pending, values):
                group[idx] = value

    def _loss_part(self, grad_sq: Optional[float]) -> Dict[str, Any]:
        """Return losses and gradient norms."""
        losses, clip_norms = self.losses, self.clip_norms
        part: Dict[str, Any] = {
            "micro": losses,
            "loss": sum(losses) if losses else None,
            "grad_sq": grad_sq,
            "grad_norm": None if grad_sq is None else math.sqrt(grad_sq),
            "clip_norm": clip_norms[-1] if clip_norms else None,
        }
        if len(clip_norms) > 1:
            part["clip_norms"] = clip_norms
        return part

    def plain_text(self) -> str:
        """Return the JSON keys and values, without braces, of what the fires know without a device."""
        fires = self.fires
        first = fires[0]
        param_dtypes, grad_dtypes = first.param_dtypes, first.grad_dtypes
        for fire in fires[1:]:
            param_dtypes, grad_dtypes = param_dtypes | fire.param_dtypes, grad_dtypes | fire.grad_dtypes
        names = tuple([fire.name for fire in fires])
        num_missing = sum([fire.num_missing for fire in fires])
        is_skipped = self.is_skipped or any(bool(fire.scaling[1]) for fire in fires)
        return plain_text(
            names, num_missing, frozenset(param_dtypes), frozenset(grad_dtypes), self.autocast, is_skipped, self.num_real_fires
        )


@functools.lru_cache(maxsize=256)
def plain_text(
    names: Any, num_missing: int, param_dtypes: Any, grad_dtypes: Any, autocast: Any, is_skipped: bool, num_fires: int
) -> str:
    """Return part of a step's line as JSON without braces; it is the same in nearly every step."""
    part = {
        "optimizers": list(names),
        "missing_grads": num_missing,
        "param_dtypes": dtype_names(param_dtypes),
        "grad_dtypes": dtype_names(grad_dtypes),
        "autocast": autocast,
        "skipped": is_skipped,
        "fires": num_fires,
    }
    return json.dumps(part)[1:-1]


def _total_square(fires: List[Any]) -> Optional[float]:
    """Return the sum of squared gradients over all fires, without the factor of a gradient scaler.

    None where no fire had a gradient.
    """
    total = None
    for fire in fires:
        if fire.grad_sq_parts:
            scale = fire.scaling[0] or 1.0
            total = (total or 0.0) + sum(fire.grad_sq_parts) / (scale * scale)
    return total
