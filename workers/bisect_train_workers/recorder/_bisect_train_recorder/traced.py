"""What `torch.compile` may trace of the recorder. Everything else of it is on dynamo's list of files that are never traced.

A program may compile its optimizer's step, its clipping, or a whole iteration: dynamo then inlines what takes the place of
torch's own functions there, and the hooks that they call. While traced, each function here is what it stands for and nothing
more: no graph break, no guard on a value that changes.

A compiled step calls no hook when it runs. But an assignment that dynamo saw is carried out after each call, so the trace
leaves the optimizer in a `CompiledStep`, where the next forward or backward finds it.
"""

from __future__ import annotations

import functools
from typing import Any, Callable


class CompiledStep:
    """The optimizer whose step ran inside a compiled function since the recorder looked last, or None.

    Of several in one compiled function the last one stays. Its learning rates are not kept: to read them would be a guard.
    """

    def __init__(self) -> None:
        """Start with none."""
        self.optimizer: Any = None

    def take(self) -> Any:
        """Return it, and forget it."""
        taken, self.optimizer = self.optimizer, None
        return taken


def hook_before(is_compiling: Callable[[], bool], hook: Callable[..., None]) -> Callable[..., None]:
    """Return the optimizer pre-hook, left out of what is compiled."""

    def before_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not is_compiling():
            hook(optimizer, args, kwargs)

    return before_step


def hook_after(is_compiling: Callable[[], bool], hook: Callable[..., None], mark: CompiledStep) -> Callable[..., None]:
    """Return the optimizer post-hook; compiled, it leaves the optimizer in the mark."""

    def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        if is_compiling():
            mark.optimizer = optimizer
        else:
            hook(optimizer, args, kwargs)

    return after_step


def told_before(original: Any, tell: Callable[..., None], is_compiling: Callable[[], bool]) -> Any:
    """Return the function preceded by `tell()`."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not is_compiling():
            tell()
        return original(*args, **kwargs)

    return call


def result_told(original: Any, tell: Callable[[Any], None], is_compiling: Callable[[], bool]) -> Any:
    """Return the function followed by `tell(result)`."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if not is_compiling():
            tell(result)
        return result

    return call


def argument_told(original: Any, tell: Callable[[Any], None], is_compiling: Callable[[], bool], *, name: str, idx: int) -> Any:
    """Return the function preceded by `tell(argument)`, which it has at a position or by a name."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not is_compiling():
            tell(args[idx] if len(args) > idx else kwargs.get(name))
        return original(*args, **kwargs)

    return call


def in_between(original: Any, begin: Callable[[], None], end: Callable[[bool], None], is_compiling: Callable[[], bool]) -> Any:
    """Return the function with `begin()` before it and `end(whether it returned)` behind."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(*args, **kwargs)
        begin()
        has_returned = False
        try:
            result = original(*args, **kwargs)
            has_returned = True
            return result
        finally:
            end(has_returned)

    return call
