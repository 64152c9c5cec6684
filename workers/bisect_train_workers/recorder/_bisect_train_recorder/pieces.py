"""What part of a whole norm this rank has, where a tensor's pieces lie on several ranks (DTensor).

A piece counts as often as it is there: its square is divided by the number of ranks that hold the same one, so that the sum
over all ranks is the square of the whole tensor's norm. Nothing here makes the ranks talk to each other. Of a plain tensor
nobody can tell on this rank alone whether others hold the same, so it is kept apart.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

from .readout import Number
from .step_line import number_text

PLAIN = 0  # number of holders of a tensor that is no DTensor: not known
Squares = Dict[int, List[Number]]  # number of holders -> squares still to be added


def num_holders(tensor: Any) -> int:
    """Return how many ranks of a DTensor's mesh hold the piece that this rank holds; PLAIN for any other tensor."""
    placements = getattr(tensor, "placements", None)
    if placements is None:
        return PLAIN
    count = 1
    for dim, placement in enumerate(placements):
        if placement.is_replicate():
            count *= int(tensor.device_mesh.size(dim))
    return count


def squares_by_holders(torch: Any, holders: Sequence[int], norms: Sequence[Number]) -> Squares:
    """Return the squares of tensors' norms by their numbers of holders."""
    found: Squares = {}
    for count in sorted(set(holders)):
        group = [norm for holder, norm in zip(holders, norms) if holder == count]
        on_host = [norm for norm in group if not isinstance(norm, torch.Tensor)]
        waiting = [norm.double() for norm in group if isinstance(norm, torch.Tensor)]
        found[count] = [sum([norm * norm for norm in on_host])]
        if waiting:
            found[count].append(torch.stack(waiting).square().sum())
    return found


def text_of(name: str, squares: Squares) -> str:
    """Return a JSON key and value, with a comma behind: [square of the plain tensors or null, share of the others].

    By now all numbers are on the host.
    """
    plain: Optional[float] = sum(squares[PLAIN]) if PLAIN in squares else None
    share = sum([sum(parts) / count for count, parts in squares.items() if count != PLAIN])
    return f'"{name}": [{number_text(plain)}, {number_text(float(share))}], '


def holders_of_norm(norm: Any) -> Optional[int]:
    """Return how many ranks have the same part of a norm of order 2; None for a norm that is whole, or of another order."""
    placements = getattr(norm, "placements", None)
    if placements is None or all(placement.is_replicate() for placement in placements):
        return None
    is_square = all(item.is_replicate() or getattr(item, "norm_type", None) == 2 for item in placements)
    return num_holders(norm) if is_square else None
