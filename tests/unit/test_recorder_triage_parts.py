"""The parts of the recorder that only triage needs, without torch, in every python at hand from 3.8 on."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bisect_train.core.changes import Variant
from bisect_train.core.probe import RECORDER_VERSION, ProbeSpec, Rung, RunSettings
from bisect_train_workers.environment import ProbeFolders
from bisect_train_workers.injection import RECORDER_FOLDER, recorder_settings
from bisect_train_workers.records import to_step_record


def find_pythons() -> list[str]:
    """Return one interpreter of each minor version from 3.8 on: pyenv's, else this one."""
    found = sorted(Path.home().glob(".pyenv/versions/3.*/bin/python"), key=lambda p: int(p.parts[-3].split(".")[1]))
    return [str(path) for path in found if int(path.parts[-3].split(".")[1]) >= 8] or [sys.executable]


every_python = pytest.mark.parametrize("python", find_pythons(), ids=lambda path: Path(path).parts[-3])


def printed_by(python: str, program: str) -> list[Any]:
    """Return the JSON values that a program prints with the recorder's package on its path."""
    done = subprocess.run([python, "-c", program], env={"PYTHONPATH": str(RECORDER_FOLDER)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


# A stand-in for torch.distributed: two ranks, one smaller group, a function that calls another one.
COLLECTIVES = """
import json, sys, types
from _bisect_train_recorder import collective_watch
c10d = types.ModuleType("torch.distributed.distributed_c10d")
exec('''
def all_reduce(tensor, op=None, group=None, async_op=False): return "reduced"
def all_gather_into_tensor(output_tensor, input_tensor, group=None, async_op=False): pass
def barrier(group=None, async_op=False): raise RuntimeError("theirs")
def all_gather_object(object_list, obj, group=None): all_reduce(obj)
def send(tensor, dst): pass
WORLD = "world"
def get_world_size(): return 2
def get_process_group_ranks(group): return [0, 1] if group == "all" else [1]
''', c10d.__dict__)
other = types.ModuleType("torch.distributed")
other.all_reduce = c10d.all_reduce
sys.modules.update({c10d.__name__: c10d, other.__name__: other, "unrelated": None})
events = []
class Session:
    def event(self, name, **data): events.append([name, data])
class Tensor:
    shape, dtype = (2, 3), "torch.float32"
log = collective_watch.CollectiveLog(Session(), c10d)
tracing = []
collective_watch.watch_collectives(c10d, log.note, lambda: bool(tracing))
def show(value): print(json.dumps(value))
show([other.all_reduce(Tensor()), other.all_reduce is c10d.all_reduce])
first = log.take()
c10d.all_reduce(tensor=Tensor(), async_op=True); again = log.take()
c10d.all_gather_into_tensor(None, Tensor()); different = log.take()
show([first == again, first[0], first != different, log.take()])
c10d.all_reduce(Tensor(), group="all"); c10d.all_reduce(Tensor(), None, "small")
c10d.all_gather_object([], Tensor()); c10d.send(1, 2)
try: c10d.barrier()
except RuntimeError as error: show(str(error))
show(log.take()[0])
tracing.append(1); c10d.all_reduce(Tensor()); show(log.take())
del tracing[:]
show(events)
for idx in range(100): c10d.all_reduce(Tensor())
Tensor.shape = (4,); c10d.all_reduce(Tensor()); c10d.all_reduce(Tensor())
show([len(events), events[-1][1]["idx"], events[-1][1]["shape"]])
"""


@every_python
def test_collective_calls_are_noted_as_they_begin_and_nested_ones_are_not(python: str) -> None:
    called, counted, raised, num, traced, events, bounded = printed_by(python, COLLECTIVES)
    assert called == ["reduced", True]
    assert counted == [True, 1, True, [0, 0]]
    assert raised == "theirs"
    assert num == 3, "all ranks' all_reduce, all_gather_object and barrier; neither the smaller group's nor the nested one"
    assert traced == [0, 0], "what is being compiled is none of the recorder's business"
    assert {name for name, _ in events} == {"collective"}
    calls = [data for _, data in events]
    late = ["all_reduce", "all_reduce", "all_gather_object", "barrier"]
    assert [call["op"] for call in calls] == ["all_reduce", "all_reduce", "all_gather_into_tensor", *late]
    assert calls[1] == {"idx": 1, "op": "all_reduce", "shape": [2, 3], "dtype": "float32", "async": True, "group": None}
    assert [call["group"] for call in calls] == [None] * 4 + [[1], None, None]
    assert [calls[-1][name] for name in ("shape", "dtype")] == [None, None]
    assert bounded == [64 + 1, 107, [4]], "64 calls, then each new kind once"


WAITS = """
import json, sys, threading, time, types
from _bisect_train_recorder import data_watch
module = sys.modules["torch.utils.data.dataloader"] = types.ModuleType("dataloader")
class Iter:
    inner = None
    def __next__(self):
        time.sleep(0.05)
        if self.inner is not None: next(self.inner)
        raise StopIteration
module._BaseDataLoaderIter = Iter
class Child(Iter): pass
wait = data_watch.DataWait()
wait.install()
def drain(iterator): return next(iterator, "ended")
outer = Child(); outer.inner = iter([1])
start = time.perf_counter(); said = drain(outer); passed = time.perf_counter() - start
print(json.dumps([said, wait.take_s(), passed]))
outer.inner = Child()
try: next(outer)
except StopIteration: pass
nested = wait.take_s()
thread = threading.Thread(target=drain, args=(Child(),)); thread.start(); thread.join()
print(json.dumps([nested, wait.take_s()]))
"""


@every_python
def test_waits_for_data_count_once_and_only_in_the_thread_that_trains(python: str) -> None:
    (said, waited, passed), (nested, in_thread) = printed_by(python, WAITS)
    assert said == "ended"
    assert 0.05 <= waited <= passed
    assert nested >= 0.1
    assert in_thread == 0.0


PARTS = """
import json
from _bisect_train_recorder.settings import Settings
from _bisect_train_recorder.triage_part import TriagePart
from _bisect_train_recorder.inputs import tensor_inputs
class Wait:
    def take_s(self): return 0.5
class Calls:
    def __init__(self, *taken): self.taken = list(taken)
    def take(self): return self.taken.pop(0)
part = TriagePart(None)
calls = Calls((2, 7), (0, 0), (1, 9))
for _ in range(2): part.take(Wait(), calls)
once = json.loads("{%s}" % part.text()[:-2])
part.take(Wait(), calls)
print(json.dumps([once, json.loads("{%s}" % part.text()[:-2])]))
one = Settings({"out": "o"}); other = Settings({"out": "o", "triage": True, "anomaly": True})
print(json.dumps([one.has_triage, one.is_anomaly_asked, other.has_triage, other.is_anomaly_asked]))
class Torch:
    Tensor = int
print(json.dumps(list(tensor_inputs(Torch, (1, {"a": [2, "x"], "b": {"c": 3}}, None), {"y": 4}))))
"""


@every_python
def test_triage_part_of_a_step_is_json_and_says_number_and_digest_of_calls(python: str) -> None:
    (once, twice), flags, inputs = printed_by(python, PARTS)
    assert once == {"data_s": 1.0, "collectives": "2:00000007", "samples": None}
    assert twice["data_s"] == 1.5
    assert re.fullmatch(r"3:[0-9a-f]{8}", twice["collectives"]) and twice["collectives"] != "3:00000007"
    assert flags == [False, False, True, True]
    assert inputs == [[0, 1], ["1.a.0", 2], ["1.b.c", 3], ["y", 4]]


def test_settings_ask_for_triage_where_it_is_wanted_or_ranks_are_several(tmp_path: Path) -> None:
    def asked(ranks: int, **settings: Any) -> tuple[bool, bool]:
        spec = ProbeSpec(Variant("tree", "commit", ("python", "train.py")), Rung(3, ranks))
        folders = ProbeFolders(tmp_path, tmp_path, tmp_path)
        told = recorder_settings(spec, RunSettings(python=sys.executable, **settings), folders)
        return told["triage"], told["anomaly"]

    assert asked(1) == (False, False)
    assert asked(2) == (True, False)
    assert asked(1, triage=True, anomaly=True) == (True, True)


def test_recorder_version_is_the_one_that_probes_are_known_by() -> None:
    text = (RECORDER_FOLDER / "_bisect_train_recorder" / "__init__.py").read_text()
    assert f'VERSION = "{RECORDER_VERSION}"' in text


def test_step_record_takes_what_triage_recorded() -> None:
    line = {"step": 1, "data_s": 0.25, "moved": 0.5, "samples": "0011223344556677", "collectives": "2:0a0b0c0d"}
    record = to_step_record(line)
    assert (record.data_s, record.moved, record.samples, record.collectives) == (0.25, 0.5, "0011223344556677", "2:0a0b0c0d")
    assert to_step_record({"step": 1}).samples is None
