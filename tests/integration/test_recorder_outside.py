"""Files that a training program writes outside its checkout, however it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorder_probe import run_program

pytest.importorskip("torch", reason="the recorder's integration tests train with torch")

TRAINING = """
import os, torch
home = os.environ["HOME"]
open(home + "/tokens.bin", "w").close()
model = torch.nn.Linear(2, 1); opt = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    model(torch.ones(1, 2)).sum().backward(); opt.step(); opt.zero_grad()
step(); step()
torch.save(model.state_dict(), home + "/model.pt")
torch.load(home + "/model.pt")
"""
SWALLOWS_STOP = """
while True:
    try: step()
    except BaseException: pass
"""


@pytest.mark.parametrize(
    ("ending", "num_events", "is_saved_seen"), [("", 2, True), ("os._exit(0)", 1, False), (SWALLOWS_STOP, 2, True)]
)
def test_recorder_lists_outside_files_at_the_first_step_and_at_the_end(
    tmp_path: Path, ending: str, num_events: int, is_saved_seen: bool
) -> None:
    probe, home = tmp_path / "probe", tmp_path / "home"
    probe.mkdir()
    home.mkdir()
    outcome = run_program(probe, TRAINING + ending, env={"HOME": str(home), "TMPDIR": str(probe)}, steps=4)
    assert outcome.status == 0, outcome.stderr
    assert outcome.events("recorder_error") == []
    found = outcome.events("outside_files")
    assert len(found) == num_events
    saved = [str(home / "model.pt")] * is_saved_seen
    assert found[0] == {"written": [str(home / "tokens.bin")], "read": []}
    assert found[-1] == {"written": [*saved, str(home / "tokens.bin")], "read": saved}


COMPILED = """
import torch, torch._dynamo.utils as utils
names = []
def step(x):
    torch._dynamo.graph_break()
    for name in names:
        with open(name, "w") as file: file.write("x")
    return x * 2
torch._dynamo.config.error_on_recompile = True
names.extend(f"{idx}.txt" for idx in range(20))
torch.compile(step, backend="eager")(torch.ones(2))
print(utils.counters["frames"]["total"])
"""


def test_recorder_compiles_nothing_anew_where_a_compiled_function_opens_files(tmp_path: Path) -> None:
    pytest.importorskip("torch._dynamo.utils", reason="torch.compile came with torch 2.0")
    plain = run_program(tmp_path, COMPILED, is_recorded=False)
    recorded = run_program(tmp_path, COMPILED)
    assert plain.status == recorded.status == 0, recorded.stderr
    assert int(recorded.stdout) - int(plain.stdout) <= 1, "the compiler looks at the audit hook once"
    assert recorded.events("recorder_error") == []
