"""What real trainings read: one rank and several, arrays, workers of a data loader."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.recorded_training import train_recorded

pytest.importorskip("torch", reason="these tests train with torch")

TRAIN = """\
import numpy as np, torch
import model
rows = torch.from_numpy(np.load("rows.npy"))
torch.manual_seed(1)
net = model.build()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
LOADER
for row in loader:
    optimizer.zero_grad()
    net(row).sum().backward()
    optimizer.step()
"""
MODEL = "import torch\ndef build(): return torch.nn.Linear(2, 1)\n"
FILES = {"model.py": MODEL, "unused.py": "", "README.md": "", "tests/test_model.py": ""}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str | bytes | None]:
    """Return the files of the repository, an array among them."""
    numpy = pytest.importorskip("numpy")
    numpy.save(tmp_path / "rows.npy", numpy.ones((6, 2), dtype="float32"))
    return {**FILES, "rows.npy": (tmp_path / "rows.npy").read_bytes()}


def program(loader: str) -> str:
    return TRAIN.replace("LOADER", loader)


@pytest.mark.parametrize("ranks", [1, 2])
def test_training_that_was_stopped_tells_all_that_its_ranks_read(
    tmp_path: Path, files: dict[str, str | bytes | None], ranks: int
) -> None:
    result = train_recorded(tmp_path / "run", program("loader = rows"), files=files, steps=3, ranks=ranks)
    reads = result.fingerprint.reads
    assert reads is not None and reads.doubts == ()
    assert {"train.py", "model.py", "rows.npy"} <= set(reads.files)
    assert not {"unused.py", "README.md", "tests/test_model.py"} & set(reads.files)
    assert reads.folders == () and "" in reads.searched and "tests" not in reads.searched
    assert {"torch", "numpy"} <= set(reads.natives)
    assert not any(event.name == "files_read" for rank in result.fingerprint.ranks for event in rank.events)


def test_training_with_workers_that_load_its_data_is_in_doubt(tmp_path: Path, files: dict[str, str | bytes | None]) -> None:
    loader = "loader = torch.utils.data.DataLoader(rows, batch_size=1, num_workers=1)"
    reads = train_recorded(tmp_path / "run", program(loader), files=files, steps=3).fingerprint.reads
    assert reads is not None and "os.fork" in reads.doubts
