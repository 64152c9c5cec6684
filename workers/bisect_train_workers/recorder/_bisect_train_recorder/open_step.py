"""The step that is being recorded: collects what happens and becomes one line.

Values stay where they are (numbers on the host, tensors on devices) until `text`, which makes
the step's one copy to the host.
"""

from __future__ import annotations

import math
from typing import Any, Dict, List, Optional, Set

from .hashes import BatchHasher
from .pieces import PLAIN, Squares, text_of
from .readout import Number, read_numbers
from .step_line import PlainText, list_text, number_text
from .tensor_sums import HASH_MODULUS

_ON_HOST = frozenset((float, int, bool, str, type(None)))


class OpenStep:
    """Everything seen since the step before closed."""

    __slots__ = (
        *("torch", "step_idx", "losses", "clip_norms", "fires", "num_real_fires", "is_skipped", "autocast", "batch"),
        *("ended_at", "t", "step_s", "self_s", "checks", "param_sq_parts", "param_bits"),
        *("ended_cpu_s", "step_cpu_s", "ended_mark", "started_mark"),
        *("moved_parts", "num_sampled", "triage", "value_keys", "values"),
        *("is_over", "num_params", "param_pieces", "plain_bits", "clip_holders", "stepped"),
    )

    def __init__(self, torch: Any, step_idx: int, triage: Any = None) -> None:
        """Start empty; `triage` is a TriagePart where it was asked for."""
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
        self.ended_cpu_s: Optional[float] = None  # CPU time when it ended
        self.step_cpu_s: Optional[float] = None
        self.started_mark: Any = None  # in the device's stream, where the step before ended
        self.ended_mark: Any = None
        self.self_s = 0.0
        self.checks: Dict[str, str] = {}
        self.param_sq_parts: List[Number] = []
        self.param_bits: List[Number] = []
        self.moved_parts: List[Number] = []
        self.num_sampled = 0
        self.triage = triage
        self.value_keys: List[Any] = []
        self.values: List[Any] = []  # of the first micro-batch: one flat tensor per key
        self.is_over = False  # a named step function has returned
        self.stepped: Set[int] = set()  # ids of the parameters in the checksums
        self.num_params = 0  # elements of the parameters that were stepped, this rank's
        self.param_pieces: Optional[Squares] = None
        self.plain_bits: List[Number] = []  # of the plain tensors among pieces of whole ones
        self.clip_holders: Optional[int] = None  # of the last norm before clipping, where it is a part of the whole one

    def forget_checksums(self) -> None:
        """Start the checksums of the parameters anew."""
        self.stepped.clear()
        self.param_sq_parts, self.param_bits, self.plain_bits = [], [], []
        self.num_params, self.param_pieces = 0, None

    def text(self, memory: Any, plain: PlainText, device: Any) -> str:
        """Return the line, in the contract's order, without its last keys and brace."""
        fires = self.fires
        self._bring_to_host()
        lrs = fires[0].lrs if len(fires) == 1 else [lr for fire in fires for lr in fire.rates(fires)]
        losses, clip_norms = self.losses, self.clip_norms
        loss = number_text(losses[0] if len(losses) == 1 else sum(losses) if losses else None)
        micro = f"[{loss}]" if len(losses) == 1 else list_text(losses)
        grad_sq = _total_square(fires)
        grad_norm = None if grad_sq is None else math.sqrt(grad_sq)
        clip_norm = number_text(clip_norms[-1] if clip_norms else None)
        batch_hash = "null" if self.batch.is_empty else f'"{self.batch.hexdigest()}"'
        is_skipped = self.is_skipped or any(fire.scaling[1] for fire in fires)
        return (
            f'{{"type": "step", "step": {self.step_idx}, "step_s": {number_text(self.step_s)}, "t": {self.t!r}, '
            f'"step_cpu_s": {number_text(self.step_cpu_s)}, {self._device_text(device)}'
            f'"micro": {micro}, "loss": {loss}, "grad_sq": {number_text(grad_sq)}, '
            f'"grad_norm": {number_text(grad_norm)}, "clip_norm": {clip_norm}, '
            f'{self._rare_text()}"lr": {plain.of_rates(lrs)}, "batch_hash": {batch_hash}, '
            f'"rss_mib": {memory.rss_text()}, "cuda_mib": {number_text(memory.cuda_mib())}, '
            f"{plain.of(fires, self.autocast, is_skipped, self.num_real_fires)}"
        )

    def _device_text(self, device: Any) -> str:
        """Return the time on the device's clock, with a comma behind; "" where it is not known."""
        step_cuda_s = device.between_s(self.started_mark, self.ended_mark)
        return "" if step_cuda_s is None else f'"step_cuda_s": {step_cuda_s!r}, '

    def _rare_text(self) -> str:
        """Return what few steps have, with a comma behind: several clippings, pieces, checksums, what triage asks for."""
        text = f'"clip_norms": {list_text(self.clip_norms)}, ' if len(self.clip_norms) > 1 else ""
        if self.clip_holders is not None:
            text += f'"clip_share": {number_text(self.clip_norms[-1] ** 2 / self.clip_holders)}, '
        if any(fire.pieces for fire in self.fires):
            text += text_of("grad_shares", _pieces_of(self.fires))
        if self.param_bits:
            text += self._check_text()
        return text if self.triage is None else text + self.triage.text()

    def _check_text(self) -> str:
        """Return the checksums, with a comma behind."""
        others = "".join([f'"{name}": "{value}", ' for name, value in self.checks.items()])
        norm, bits = math.sqrt(sum(self.param_sq_parts)), sum(self.param_bits) % HASH_MODULUS
        moved = f'"moved": {sum(self.moved_parts) / self.num_sampled!r}, ' if self.num_sampled else ""
        shares = "" if self.param_pieces is None else text_of("param_shares", self.param_pieces)
        plain = f'"plain_hash": "{sum(self.plain_bits) % HASH_MODULUS:016x}", ' if self.plain_bits else ""
        return (
            f'"param_norm": {number_text(norm)}, "param_hash": "{bits:016x}", "num_params": {self.num_params}, '
            f"{shares}{plain}{moved}{others}"
        )

    def _bring_to_host(self) -> None:
        """Replace every pending tensor by its number: the step's one copy."""
        groups = [self.losses, self.clip_norms, self.batch.pending, self.param_sq_parts, self.param_bits]
        if self.param_bits:
            groups.append(self.moved_parts)
        if self.values:
            groups.append(self.values)
        if self.triage is not None:
            groups.append(self.triage.pending)
        for fire in self.fires:
            groups += (fire.lrs, fire.grad_sq_parts, fire.scaling)
            if fire.pieces is not None:
                groups += fire.pieces.values()
        if self.param_pieces is not None:
            groups += (self.plain_bits, *self.param_pieces.values())
        if _ON_HOST.issuperset([type(number) for group in groups for number in group]):
            return
        tensor_class = self.torch.Tensor
        pending = [(group, idx) for group in groups for idx, n in enumerate(group) if isinstance(n, tensor_class)]
        if pending:
            values = read_numbers(self.torch, [group[idx] for group, idx in pending])
            for (group, idx), value in zip(pending, values):
                group[idx] = value


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


def _pieces_of(fires: List[Any]) -> Squares:
    """Return the squares of all fires' gradients by their numbers of holders, without the factor of a gradient scaler."""
    found: Squares = {}
    for fire in fires:
        scale = fire.scaling[0] or 1.0
        for count, parts in (fire.pieces or {PLAIN: fire.grad_sq_parts}).items():
            found.setdefault(count, []).extend([part / (scale * scale) for part in parts])
    return found
