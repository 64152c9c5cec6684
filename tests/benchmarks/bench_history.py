"""How long a range of 100,000 commits takes; run by hand: `python -m tests.benchmarks.bench_history [COMMITS]`."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bisect_train.changes.repository import Repository
from bisect_train.changes.space import build_space
from bisect_train.core.changes import make_point
from tests.support.git_repos import git, question_of


def write_stream(num_commits: int) -> Iterator[str]:
    """Yield the input of `git fast-import` for a linear history, each commit of one small file."""
    for idx in range(num_commits):
        text = f"value = {idx}\n"
        yield f"commit refs/heads/main\ncommitter A U Thor <a@example.org> {1500000000 + 60 * idx} +0000\n"
        yield f"data {len(str(idx)) + 7}\ncommit {idx}\n"
        yield f"M 100644 inline f{idx % 100}.py\ndata {len(text)}\n{text}\n"


def main(num_commits: int = 100_000) -> None:
    """Build a linear history and time what the start of a bisection does with it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "repo"
        folder.mkdir()
        git(folder, "init", "-q", "-b", "main")
        git(folder, "fast-import", "--quiet", stdin="".join(write_stream(num_commits)).encode())
        repository = Repository.open(folder, home=Path(name) / "home")
        good, bad = git(folder, "rev-list", "--max-parents=0", "main"), repository.resolve("main")
        for options in ({}, {"first_parent": False}, {"paths": ("f7.py",)}):
            started = time.perf_counter()
            space = build_space(repository, question_of(good, bad, **options))  # type: ignore[arg-type]
            built = time.perf_counter()
            variant = space.variant(make_point(len(space.changes) // 2))
            made = time.perf_counter()
            num_bytes = sum(len(pack.data) for pack in space.packs(variant))
            packed = time.perf_counter()
            print(
                f"{options}: {len(space.changes)} changes in {built - started:.2f} s, "
                f"variant {made - built:.3f} s, packs {packed - made:.3f} s ({num_bytes} bytes)"
            )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
