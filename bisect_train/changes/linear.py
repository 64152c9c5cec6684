"""A history with merges as one line that keeps each side branch together.

For a merge M of a branch b1..bn the line is: what M's first parent has, then b1..bn, then M. A prefix that ends at M is
M's own tree. One that ends at b_i is a state that nobody committed: M's first parent with b_i merged into it. It is written
as a tuple of `heads`, commits whose ancestors together are exactly the prefix; branches of branches and octopus merges add
more heads. Change M itself is then what its author did beyond the merge, and each b_i what its commit did.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping


def linearise(parents: Mapping[str, tuple[str, ...]], tip: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the commits, each after all its ancestors, with the heads of the prefix that ends there.

    Args:
        parents: of each commit in the range; parents outside of it belong to the good end.
        tip: the newest commit.
    """
    done: set[str] = set()
    # (commit, heads around it, whether its ancestors are done); an explicit stack: branches can nest deeply
    waiting: list[tuple[str, tuple[str, ...], bool]] = [(tip, (), False)]
    while waiting:
        commit, around, is_ready = waiting.pop()
        if is_ready:
            done.add(commit)
            yield commit, (*around, commit)
            continue
        for link in _main_line(parents, commit, done):
            waiting.append((link, around, True))
            mainline, *branches = parents[link] or ("",)
            for idx in reversed(range(len(branches))):
                waiting.append((branches[idx], (*around, mainline, *branches[:idx]), False))


def _main_line(parents: Mapping[str, tuple[str, ...]], tip: str, done: set[str]) -> Iterator[str]:
    """Yield `tip` and its first parents, newest first, as long as they are in the range and not done."""
    commit = tip
    while commit in parents and commit not in done:
        yield commit
        if not parents[commit]:
            return
        commit = parents[commit][0]
