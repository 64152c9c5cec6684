"""First loading channel of the bisect-train recorder: python imports this file at its start.

It only works where a `settings.json` lies beside it. It never raises, and it runs the
`sitecustomize` that it shadows, as if this one were not here.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _start_recorder():
    """Start the recorder that lies beside this file; a failure is one line on stderr."""
    try:
        if os.path.exists(os.path.join(_HERE, "settings.json")):
            import _bisect_train_recorder

            _bisect_train_recorder.start("sitecustomize")
    except Exception as error:
        sys.stderr.write("bisect-train: the recorder did not start: %r\n" % (error,))


def _run_shadowed_sitecustomize():
    """Execute the next `sitecustomize` on sys.path, once per process."""
    if getattr(sys, "_bisect_train_chained", False):
        return
    sys._bisect_train_chained = True
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    path = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    spec = PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["_bisect_train_shadowed_sitecustomize"] = module
    spec.loader.exec_module(module)


_start_recorder()
try:
    _run_shadowed_sitecustomize()
except Exception as _error:  # what python's own site module does with a broken sitecustomize
    sys.stderr.write("Error in sitecustomize; the shadowed one raised:\n%s: %s\n" % (type(_error).__name__, _error))
