"""What the text of a failure says: expressions for messages of python, torch, NCCL and gloo.

Source of each expression: the libraries' own messages (torch 2.x, gloo, NCCL, argparse); they are matched, never required.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_CHECKPOINT = re.compile(
    r"Error\(s\) in loading state_dict|Missing key\(s\) in|Unexpected key\(s\) in|size mismatch for |"
    r"Missing key in checkpoint state_dict|PytorchStreamReader failed|loaded state dict (?:has|contains)",
)
_RESOURCES = re.compile(
    r"no node has |No CUDA GPUs are available|invalid device ordinal|no CUDA-capable device|"
    r"Duplicate GPU detected|Insufficient resources|devices? (?:is|are) not available",
    re.IGNORECASE,
)
_ENVIRONMENT = re.compile(
    r"undefined symbol|GLIBC(?:XX)?_|driver version is insufficient|driver on your system is too old|"
    r"not compiled with (?:CUDA|NCCL|GLOO)|Distributed package doesn't have|no kernel image is available|"
    r"cannot open shared object file|is required for a normal functioning|requires? (?:torch|python|numpy)\s*[<>=]|"
    r"compiled using NumPy 1\.x|binary incompatibility|could not be installed|No matching distribution",
    re.IGNORECASE,
)
_IMPORT = re.compile(r"ModuleNotFoundError|ImportError|No module named |cannot import name ")
_CONFIG_TYPES = re.compile(
    r"^(?:[\w.]*\.)?(?:KeyError|ValidationError|ConfigKeyError|ConfigAttributeError|ConfigCompositionException|MissingMandatoryValue|"
    r"ScannerError|ParserError|YAMLError|JSONDecodeError|TOMLDecodeError|ArgumentError|UnrecognizedArgument)\b"
)
_CONFIG_WORDS = re.compile(
    r"unrecognized arguments|the following arguments are required|invalid choice:|unexpected keyword argument|"
    r"unknown (?:config|key|argument|option)|invalid (?:config|option)|error: argument |can't open file|"
    r"No such file or directory",
    re.IGNORECASE,
)
_INIT_TIMEOUT = re.compile(
    r"waiting for clients|DistStoreError|DistNetworkError|timed out after .*rendezvous|RendezvousTimeout|"
    r"connect\(\) timed out|client socket has timed out",
    re.IGNORECASE,
)
_COLLECTIVE_TIMEOUT = re.compile(
    r"collective operation timeout|Timed out waiting \d+ms|Application timeout caused pair closure|"
    r"Wait timeout|Operation timed out!|failed to pass monitoredBarrier|Ranks? [\d, ]+ failed to ",
    re.IGNORECASE,
)
_PEER_GONE = re.compile(
    r"Connection closed by peer|Connection reset by peer|Broken pipe|remote process exited|"
    r"NCCL communicator was aborted|recvValue failed|Connection refused",
    re.IGNORECASE,
)
_COLLECTIVE_MISMATCH = re.compile(
    r"op\.preamble\.length <= op\.nbytes|distributed collective mismatch|Detected mismatch between collectives", re.IGNORECASE
)
_ALLOCATION = re.compile(
    r"[Tt]ried to allocate ([\d.,]+ ?[KMGTP]?i?B)|you tried to allocate (\d+) bytes|Unable to allocate ([\d.]+ ?[KMGTP]?i?B)"
)
_ROOT_CAUSE = re.compile(r"Root Cause \(first observed failure\):.*?rank\s*:\s*(\d+).*?exitcode\s*:\s*(-?\d+)", re.DOTALL)
_OUTSIDE = re.compile(r"imported (\S+) from (.+?), not from the checkout|imported (\S+) from (\S+) and \d+ more")
_OPERATION = re.compile(r"Function '(\w+)' returned nan values(?: in its (\d+)\w* output)?")


def class_of_start(message: str) -> str:
    """Return the symptom that the message of a failure before the first step stands for; `crash` where it names none."""
    if _CHECKPOINT.search(message):
        return "checkpoint_does_not_fit"
    if _RESOURCES.search(message):
        return "no_resources"
    if _ENVIRONMENT.search(message):
        return "environment_mismatch"
    if _IMPORT.search(message):
        return "import_error"
    if _CONFIG_TYPES.search(message) or _CONFIG_WORDS.search(message):
        return "config_error"
    return "crash"


def is_init_timeout(message: str) -> bool:
    """Return whether a process group could not be made in time."""
    return bool(_INIT_TIMEOUT.search(message))


def is_collective_timeout(message: str) -> bool:
    """Return whether a collective gave up waiting."""
    return bool(_COLLECTIVE_TIMEOUT.search(message))


def is_peer_gone(message: str) -> bool:
    """Return whether the failure is that another rank went away."""
    return bool(_PEER_GONE.search(message))


def is_collective_mismatch(message: str) -> bool:
    """Return whether ranks made collective calls that do not fit each other."""
    return bool(_COLLECTIVE_MISMATCH.search(message))


def allocation_of(texts: Sequence[str]) -> str:
    """Return the size of the allocation that failed, with its unit, as the first text that has one says; "" where none does."""
    for text in texts:
        found = _ALLOCATION.search(text)
        if found:
            size = next(group for group in found.groups() if group)
            return f"{int(size):,} bytes" if size.isdigit() else size
    return ""


def root_cause_of(log: str) -> tuple[int, int] | None:
    """Return (rank, exit status) of what torchrun calls the first failure, negative for a signal; None without one."""
    found = _ROOT_CAUSE.search(log)
    return (int(found.group(1)), int(found.group(2))) if found else None


def outside_import(message: str) -> tuple[str, str] | None:
    """Return (module, path) of a module that was not imported from the checkout, None where the message says no such thing."""
    found = _OUTSIDE.search(message)
    if found is None:
        return None
    module, path = (group for group in found.groups() if group)
    return module, path


def operation_of(text: str) -> tuple[str, int] | None:
    """Return the operation whose backward gave the first NaN, as torch's anomaly detection names it, and of which output.

    None where the text does not name it.
    """
    found = _OPERATION.search(text)
    return (found.group(1), int(found.group(2) or 0)) if found else None
