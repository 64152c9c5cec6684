"""What a node keeps and how it goes: real folders and locks, no probe."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bisect_train_workers.leftovers import WARM, find_leftovers, sweep_leftovers
from bisect_train_workers.locks import HeldLock, hold_lock, try_lock
from bisect_train_workers.node import NodeHome
from bisect_train_workers.overlay import overlay_shelf
from bisect_train_workers.processes import MARKER, SESSION_MARKER, make_marker
from bisect_train_workers.upkeep import (
    CHECKOUT,
    KEPT,
    MIRROR,
    OVERLAY,
    RUNNING,
    CacheItem,
    bound_node,
    choose_oldest,
    find_limit,
    list_node,
    remove_item,
)

NOW = 2_000_000_000.0


def write(path: Path, size: int = 10_000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(size))
    return path


@pytest.fixture
def home(tmp_path: Path) -> NodeHome:
    """Two checkouts and a mirror, an overlay, a kept probe."""
    node = NodeHome(tmp_path / "node")
    for idx in range(2):
        slot = node.path / f"repos/r/slots/{idx}"
        write(slot / "tree/train.py")
        (slot / "tree/.git").mkdir()
        write(slot / "lock", 0)
        os.utime(slot / "tree/.git", (NOW - 100 * idx, NOW - 100 * idx))
        os.utime(write(slot / "index-"), (NOW - 1000, NOW - 1000))
    write(node.path / "repos/r/mirror.git/objects/pack/pack-1.pack", 50_000)
    with overlay_shelf(node).hold("abc", lambda draft, fd: write(draft / "site-packages/x.py") and None):
        pass
    os.utime(node.path / "overlays/abc.use", (NOW - 500, NOW - 500))
    write(node.path / "kept/1/checkout/train.py")
    return node


def of_kind(home: NodeHome, kind: str) -> list[CacheItem]:
    return [item for item in list_node(home) if item.kind == kind]


def lock(path: Path) -> HeldLock:
    held = try_lock(path)
    assert held is not None
    return held


def test_node_is_listed_with_sizes_and_times(home: NodeHome) -> None:
    seen = {(item.kind, item.path.name): item for item in list_node(home)}
    assert sorted(seen) == [(CHECKOUT, "0"), (CHECKOUT, "1"), (KEPT, "1"), (MIRROR, "mirror.git"), (OVERLAY, "abc")]
    assert all(10_000 <= item.num_bytes < 200_000 and not item.held_by for item in seen.values())
    assert seen[CHECKOUT, "1"].last_use_s == NOW - 100 and seen[OVERLAY, "abc"].last_use_s == NOW - 500
    assert seen[MIRROR, "mirror.git"].num_bytes > 50_000 and seen[MIRROR, "mirror.git"].last_use_s == NOW


def test_listing_a_node_that_is_not_there_makes_nothing(tmp_path: Path) -> None:
    assert list_node(NodeHome(tmp_path / "none")) == () and not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", [CHECKOUT, MIRROR, OVERLAY])
def test_item_goes_unless_its_lock_is_held(home: NodeHome, kind: str) -> None:
    locks = {CHECKOUT: "repos/r/slots/0/lock", MIRROR: "repos/r/slots/1/lock", OVERLAY: "overlays/abc.use"}
    item = of_kind(home, kind)[0]
    held = lock(home.path / locks[kind])
    assert of_kind(home, kind)[0].held_by == "a probe" and not remove_item(home, item)
    assert of_kind(home, kind)[0].num_bytes == item.num_bytes
    held.release()
    assert remove_item(home, item) and item not in list_node(home)
    assert (home.path / locks[kind]).exists(), "whoever waits for a lock has its file open"


def test_mirror_that_is_being_filled_stays(home: NodeHome) -> None:
    with hold_lock(home.path / "repos/r/mirror.lock"):
        assert not remove_item(home, of_kind(home, MIRROR)[0])


def test_running_probe_is_never_removed(home: NodeHome) -> None:
    write(home.path / "probes/p/lock", 0)
    held = lock(home.path / "probes/p/lock")
    (item,) = of_kind(home, RUNNING)
    assert item.held_by and not remove_item(home, item) and item.path.is_dir()
    held.release()
    assert of_kind(home, RUNNING) == [], "that of a dead probe is a leftover"


def test_oldest_items_are_chosen_and_no_more_than_needed() -> None:
    sizes = (3, 1, 2)
    items = [CacheItem(CHECKOUT, Path(str(idx)), size, float(idx)) for idx, size in enumerate(sizes)]
    for order, limit in itertools.product(itertools.permutations(items), range(-1, 9)):
        chosen = choose_oldest(order, total_bytes=7, max_bytes=limit)  # 1 byte more than the items have
        assert chosen == items[: len(chosen)]
        left = 7 - sum(item.num_bytes for item in chosen)
        assert left <= limit or len(chosen) == len(items)
        assert not chosen or left + chosen[-1].num_bytes > limit


def test_node_is_brought_under_its_limit_once_an_hour(home: NodeHome) -> None:
    size = sum(item.num_bytes for item in list_node(home) if item.kind != KEPT)
    smaller = {"BISECT_TRAIN_CACHE_LIMIT": str(size - 1)}
    assert bound_node(home, environ={"BISECT_TRAIN_CACHE_LIMIT": str(size)}, now_s=NOW) == []
    assert bound_node(home, environ=smaller, now_s=NOW + 3599) == [], "it was looked at within the hour"
    (gone,) = bound_node(home, environ=smaller, now_s=NOW + 3601)
    assert gone.kind == OVERLAY, "the one that was not used for longest"
    rest = bound_node(home, environ={"BISECT_TRAIN_CACHE_LIMIT": "0"}, now_s=NOW + 9999)
    assert sorted(item.kind for item in rest) == [CHECKOUT, CHECKOUT, MIRROR]
    assert [item.kind for item in list_node(home)] == [KEPT], "what a person keeps stays"


def test_node_that_is_in_use_or_has_a_wrong_limit_is_left_alone(home: NodeHome) -> None:
    before = list_node(home)
    assert bound_node(home, environ={"BISECT_TRAIN_CACHE_LIMIT": "much"}, now_s=NOW) == []
    held = [lock(home.path / f"repos/r/slots/{idx}/lock") for idx in range(2)] + [lock(home.path / "overlays/abc.use")]
    assert bound_node(home, environ={"BISECT_TRAIN_CACHE_LIMIT": "0"}, now_s=NOW + 3601) == []
    for item in held:
        item.release()
    assert list_node(home) == before


def test_limit_is_what_the_variable_says() -> None:
    assert find_limit({}) == 50 * 10**9 and find_limit({"BISECT_TRAIN_CACHE_LIMIT": "2GiB"}) == 2**31
    with pytest.raises(ValueError, match="not a size"):
        find_limit({"BISECT_TRAIN_CACHE_LIMIT": "much"})


# ---- what is left behind ------------------------------------------------------------------------------------------


def start_sleeper(variable: str, value: str) -> subprocess.Popen[bytes]:
    """Start a process with a variable in its environment; return once it can be seen there."""
    command = [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(600)"]
    process = subprocess.Popen(command, env={**os.environ, variable: value}, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline()
    return process


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_leftovers_are_found_and_swept_and_the_living_are_not(home: NodeHome, tmp_path: Path) -> None:
    state = tmp_path / "state"
    orphan = start_sleeper(MARKER, make_marker("p", dead_pid()).rpartition(":")[0] + ":1")
    living = start_sleeper(MARKER, make_marker("p", os.getpid()))
    write(state / "ray/bt-ray-dead/lock", 0)
    write(state / "ray/bt-ray-living/lock", 0)
    of_ray = start_sleeper(SESSION_MARKER, "bt-ray-dead")
    for name in ("probes/dead/lock", "probes/living/lock", "warm/dead/lock"):
        write(home.path / name, 0)
    write(home.path / "overlays/half.draft/x")
    write(state / "mirrors/.new-old/HEAD")
    write(state / "mirrors/.new-young/HEAD")
    os.utime(state / "mirrors/.new-old", (time.time() - 4000,) * 2)
    held = [lock(state / "ray/bt-ray-living/lock"), lock(home.path / "probes/living/lock")]
    ours = (str(tmp_path), f"process {orphan.pid}", f"process {of_ray.pid}", f"process {living.pid}")
    found = [item for item in find_leftovers(state, home) if item.where.startswith(ours)]
    assert {item.what for item in found} == {
        *("process of a dead probe", "process of a dead Ray", "files of a dead Ray", "folder of a dead probe", WARM),
        *("half-made packages", "scratch"),
    }
    assert len(found) == 7
    left = [item for item in sweep_leftovers(state, home) if item.where.startswith(ours)]
    assert left == []
    assert orphan.wait(10) < 0 and of_ray.wait(10) < 0 and living.poll() is None
    assert sorted(path.name for path in (state / "ray").iterdir()) == ["bt-ray-living"]
    assert sorted(path.name for path in (home.path / "probes").iterdir()) == ["living"]
    assert (state / "mirrors/.new-young").is_dir() and not (state / "mirrors/.new-old").exists()
    living.kill()
    living.wait()
    for process in (orphan, living, of_ray):
        assert process.stdout is not None
        process.stdout.close()
    for item in held:
        item.release()
