"""For the peers of `bench_bisect`: counts a program's optimizer steps from outside, and ends it after STOP_AFTER of them.

Each step appends a byte to the file that STEP_LOG names. It stands for the `--max-steps` that a person would give a shrunk
script, where the program has no such option at every commit.
"""

import importlib.abc
import importlib.machinery
import os
import sys

_LOG = os.environ.get("STEP_LOG", "")
_STOP = int(os.environ.get("STOP_AFTER") or 0)


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Installs the hook once torch has been imported."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch.optim.optimizer":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            module.register_optimizer_step_post_hook(_count)

        spec.loader.exec_module = exec_module
        return spec


_num_steps = 0


def _count(optimizer, args, kwargs):
    global _num_steps
    _num_steps += 1
    os.write(_file, b".")
    if _num_steps == _STOP:
        sys.stdout.flush()
        os._exit(0)


if _LOG:
    _file = os.open(_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    sys.meta_path.insert(0, _AfterTorch())
