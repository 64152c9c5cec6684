"""Finds the model's outermost module and then watches only that one.

The search replaces `torch.nn.Module.__call__` until a training-mode call of a module with
trainable parameters is seen, and steps aside during every call: nothing of it is traced by
`torch.compile`, and no hook is added (global hooks fire extra and recompile). The watch sets
`_compiled_call_impl` in the instance's dict: torch looks there before its own implementation, it
works the same for plain, compiled (either way) and DDP modules, and torch drops it from copies.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from typing import Any, Callable

OnForward = Callable[[Any, Any, Any], None]


def is_compiling_function(torch: Any) -> Callable[[], bool]:
    """Return torch's function that tells whether it is tracing (torch 2.0 has none that traces)."""
    return getattr(getattr(torch, "compiler", None), "is_compiling", None) or (lambda: False)


def is_training_call(torch: Any, module: Any) -> bool:
    """Tell whether a call of the module is a training forward: it can lead to gradients. One on the meta device only counts."""
    if not module.training or not torch.is_grad_enabled():
        return False
    params = list(module.parameters())
    return any(param.requires_grad for param in params) and not any(param.is_meta for param in params)


class RootCall:
    """Stands in for the root's call implementation; copies and pickles of it are None."""

    def __init__(self, module: Any, implementation: Any, on_forward: OnForward, is_compiling: Any) -> None:
        """Call `on_forward(module, args, kwargs)` and then what was there, or torch's own."""
        self._module = weakref.ref(module)  # no cycle: a dropped model frees its memory at once
        self._implementation = implementation
        self._on_forward = on_forward
        self._is_compiling = is_compiling

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Report the forward and run it."""
        module = self._module()
        if not self._is_compiling():
            self._on_forward(module, args, kwargs)
        return self.unwatched(module, *args, **kwargs)

    def unwatched(self, module: Any, *args: Any, **kwargs: Any) -> Any:
        """Run the forward without a report."""
        return (self._implementation or module._call_impl)(*args, **kwargs)

    def __reduce__(self) -> Any:
        """Pickle as None, so that a saved model loads without the recorder."""
        return type(None), ()


class RootHook:
    """Forward pre-hook of the root for torch 2.0; copies and pickles of it do nothing."""

    def __init__(self, on_forward: OnForward) -> None:
        """Call `on_forward(module, args, kwargs)`."""
        self._on_forward = on_forward

    def __call__(self, module: Any, args: Any, kwargs: Any) -> None:
        """Report the forward; None leaves its arguments as they are."""
        self._on_forward(module, args, kwargs)

    def __reduce__(self) -> Any:
        """Pickle as a function of the standard library that takes anything and returns None."""
        return getattr, (contextlib.nullcontext(), "__exit__")


class RootFinder:
    """Looks for the root module."""

    def __init__(self, torch: Any, on_forward: OnForward, guarded: Any) -> None:
        """Report forwards to `on_forward`, which may raise SystemExit to stop the program."""
        self._torch = torch
        self._on_forward = on_forward
        self._is_compiling = is_compiling_function(torch)
        self._inspect = guarded(self._inspect_call)
        self.has_root = False

    def install(self) -> None:
        """Begin to look at calls of modules."""
        module_class = self._torch.nn.Module
        original = module_class.__call__
        is_compiling = self._is_compiling
        finder = self

        @functools.wraps(original)
        def searching_call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling() or finder.has_root:
                return original(module, *args, **kwargs)
            module_class.__call__ = original
            try:
                if finder._inspect(module):
                    finder._on_forward(module, args, kwargs)
                    return finder._unwatched_call(module, *args, **kwargs)
                return original(module, *args, **kwargs)
            finally:
                if not finder.has_root:
                    module_class.__call__ = searching_call

        module_class.__call__ = searching_call

    def _inspect_call(self, module: Any) -> bool:
        """Take the module as the root if this is a training call; tell whether it is."""
        if not is_training_call(self._torch, module):
            return False
        self.has_root = True
        self._watch(module)
        return True

    def _watch(self, module: Any) -> None:
        """Report every later forward of this instance."""
        if hasattr(self._torch.nn.Module, "_compiled_call_impl"):
            implementation = getattr(module, "_compiled_call_impl", None)
            call = RootCall(module, implementation, self._on_forward, self._is_compiling)
            module.__dict__["_compiled_call_impl"] = call
            keep_out_of_replicas(self._torch.nn.Module)
        else:  # torch 2.0
            module.register_forward_pre_hook(RootHook(self._on_forward), with_kwargs=True, prepend=True)

    def _unwatched_call(self, module: Any, *args: Any, **kwargs: Any) -> Any:
        """Run the call in which the root was found, without reporting it twice."""
        call = module.__dict__.get("_compiled_call_impl")
        if not isinstance(call, RootCall):
            return module._call_impl(*args, **kwargs)
        return call.unwatched(module, *args, **kwargs)


def keep_out_of_replicas(module_class: Any) -> None:
    """Make `DataParallel`'s replicas of a watched module run their own forward.

    They copy the instance's dict, and with it the stand-in of the original.
    """
    original = getattr(module_class, "_replicate_for_data_parallel", None)
    if original is None:
        return

    @functools.wraps(original)
    def _replicate_for_data_parallel(self: Any) -> Any:
        replica = original(self)
        if isinstance(replica.__dict__.get("_compiled_call_impl"), RootCall):
            del replica.__dict__["_compiled_call_impl"]
        return replica

    module_class._replicate_for_data_parallel = _replicate_for_data_parallel
