"""After a real `run` the user's repository is as it was, and every probe ran the code of its own checkout."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bisect_train.core.changes import point_of_text
from bisect_train.store.home import open_store
from tests.support.command_line import CommandLine
from tests.support.git_repos import UserRepo, state_of

TRAIN_PY = """\
import torch
import mylib
from mylib import rates

print("MODULE", mylib.__file__, rates.__file__, rates.NUMBER, rates.LR, flush=True)
torch.manual_seed(3)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=rates.LR)
for step in range(100):
    x = torch.randn(256, 8)
    loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

NUM_COMMITS, CULPRIT = 6, 3


def number_of(idx: int) -> int:
    """Return the number in a commit's files; the culprit leaves it, so that it can be undone without a conflict."""
    return idx - (idx == CULPRIT)


def build(path: Path) -> UserRepo:
    """A package in src/ that is installed editable, and a program that imports it."""
    repo = UserRepo.create(path)
    for idx in range(NUM_COMMITS):
        rate = 0.0005 if idx >= CULPRIT else 0.05
        files = {
            "train.py": TRAIN_PY,
            "src/mylib/__init__.py": "",
            "src/mylib/rates.py": f"LR = {rate}\n\n\n# lines between\n\n\nNUMBER = {number_of(idx)}\n",
            "pyproject.toml": '[project]\nname = "mylib"\nversion = "1"\n\n[tool.setuptools.packages.find]\nwhere = ["src"]\n',
        }
        repo.commit(files, message=f"commit number {idx}")
    return repo


def make_interpreter(folder: Path, repo: UserRepo) -> Path:
    """Return the python of an environment of its own that sees torch, and `mylib` as `pip install -e` leaves it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site = next((folder / "lib").glob("python*")) / "site-packages"
    ours = next(Path(item) for item in sys.path if item.endswith("site-packages"))
    (site / "torch.pth").write_text(f"{ours}\n")
    (site / "__editable__.mylib-1.pth").write_text(f"{repo.path / 'src'}\n")
    info = site / "mylib-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mylib\nVersion: 1\n")
    (info / "direct_url.json").write_text(f'{{"dir_info": {{"editable": true}}, "url": "file://{repo.path}"}}')
    (info / "RECORD").write_text("")
    return folder / "bin" / "python"


def make_it_messy(repo: UserRepo) -> None:
    """A stash, a git bisect that is under way, staged and unstaged changes, untracked and ignored files."""
    repo.write("train.py", TRAIN_PY + "# put away\n")
    repo.git("stash")
    repo.git("bisect", "start", "HEAD", "HEAD~4")
    repo.write("src/mylib/rates.py", "LR = 1000.0\nNUMBER = 'dirty'\n")
    repo.write("staged.txt", "staged\n")
    repo.git("add", "staged.txt")
    repo.write("untracked.py", "print('untracked')\n")
    repo.write(".git/info/exclude", "*.log\n")
    repo.write("old.log", "ignored\n")


@pytest.mark.scenario
@pytest.mark.timeout(600)
def test_run_leaves_the_repository_as_it_was_and_runs_each_checkouts_own_code(tmp_path: Path) -> None:
    repo = build(tmp_path / "repo")
    commits = repo.git("rev-list", "--reverse", "main").split()
    python = make_interpreter(tmp_path / "venv", repo)
    make_it_messy(repo)
    facts = ("status --porcelain=v2 --branch", "stash list", "for-each-ref", "bisect log", "rev-parse HEAD", "reflog")
    before = state_of(repo.path), [repo.git(*fact.split()) for fact in facts]
    before = state_of(repo.path), before[1]  # `git status` itself may refresh the index
    line = CommandLine(repo.path, tmp_path / "home")
    arguments = ["--good", commits[0], "--bad", "main", "--steps", "5", "--python", str(python)]
    status, said = line.run("run", *arguments, "--", "python", "train.py")
    print(said)
    after = state_of(repo.path)
    assert {name for name in before[0].keys() | after.keys() if before[0].get(name) != after.get(name)} == set()
    assert [repo.git(*fact.split()) for fact in facts] == before[1]
    assert status == 0 and commits[CULPRIT][:8] in said
    assert num_with_own_code(tmp_path / "home", commits) > 10
    line.wait_until_gone([], limit_s=5.0)


def num_with_own_code(home: Path, commits: list[str]) -> int:
    """Return the number of probes; all of them imported the package from their own checkout, at their own commit."""
    store = open_store(home)
    try:
        probes = store.results(store.load("last").id)
    finally:
        store.close()
    for probe in probes:
        found = re.search(r"MODULE (\S+) (\S+) (\S+) (\S+)", probe.result.log_tail)
        assert found, probe.result.log_tail
        assert all(place.startswith(f"{home}/node/") for place in found.groups()[:2]), found.group()
        point = probe.spec["point"]
        if point.isdigit():
            assert found.group(3) == str(number_of(int(point))), (point, found.group())
            assert probe.spec["commit"] == commits[int(point)]
        assert (found.group(4) == "0.0005") == point_of_text(point).holds(CULPRIT - 1), (point, found.group())
        assert not probe.result.warnings, probe.result.warnings
    return len(probes)
