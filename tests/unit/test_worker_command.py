"""From the command with placeholders to the argument list."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bisect_train.core.changes import Variant
from bisect_train.core.probe import ProbeSpec, Rung
from bisect_train_workers.command import CommandError, Places, Share, complete_command, insert_command, program_seed

PLACES = Places("/env/bin/python", "/p/config.yaml", "/p/out", 23456)
SECOND = replace(PLACES, share=Share(1, 2, "10.0.0.7"))
TORCHRUN = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port", "23456"]


def spec_of(*command: str, ranks: int = 1, steps: int | None = 20, seed_idx: int = 0) -> ProbeSpec:
    return ProbeSpec(Variant("0" * 40, "1" * 40, command), Rung(steps, ranks), seed_idx)


def test_complete_command_fills_every_placeholder() -> None:
    command = ("bash", "run.sh", "--c={config}", "{out}/x", "{port}", "{ranks}", "{seed}", "{steps}")
    assert complete_command(spec_of(*command, ranks=2, seed_idx=1), PLACES) == [
        *("bash", "run.sh", "--c=/p/config.yaml", "/p/out/x", "23456", "2", "1000003", "20")
    ]


@pytest.mark.parametrize("text", ['{"lr": 1, "steps": {}}', "{}", "{lr}", "${out", "{{}}", "{ out }"])
def test_complete_command_keeps_other_braces(text: str) -> None:
    assert complete_command(spec_of("x", text), PLACES) == ["x", text]


@pytest.mark.parametrize(
    ("given", "used"), [("python", "/env/bin/python"), ("python3", "/env/bin/python"), ("/usr/bin/python3", "/usr/bin/python3")]
)
def test_complete_command_resolves_plain_python(given: str, used: str) -> None:
    assert complete_command(spec_of(given, "t.py"), PLACES) == [used, "t.py"]


@pytest.mark.parametrize(
    ("command", "rest"),
    [
        (["python", "t.py", "-m", "x"], ["t.py", "-m", "x"]),
        (["python", "-u", "t.py"], ["t.py"]),
        (["python", "-m", "pkg.train", "--a"], ["-m", "pkg.train", "--a"]),
        (["python", "-X", "dev", "t.py"], ["--no-python", "/env/bin/python", "-X", "dev", "t.py"]),
        (["python", "-c", "pass"], ["--no-python", "/env/bin/python", "-c", "pass"]),
    ],
)
def test_complete_command_puts_plain_python_under_torchrun(command: list[str], rest: list[str]) -> None:
    assert complete_command(spec_of(*command, ranks=2), PLACES) == ["/env/bin/python", *TORCHRUN, *rest]


@pytest.mark.parametrize(
    "command",
    [
        ["torchrun", "t.py"],
        ["bash", "run.sh"],
        ["python", "-m", "torch.distributed.run", "t.py"],
        ["python"],
        ["python", "t.py", "{ranks}"],
    ],
)
def test_complete_command_leaves_launchers_alone(command: list[str]) -> None:
    assert "--nproc-per-node" not in complete_command(spec_of(*command, ranks=2), PLACES)


def test_command_on_several_nodes_says_which_one_it_is_on() -> None:
    nodes = [
        "--nnodes",
        "2",
        "--node-rank",
        "1",
        "--nproc-per-node",
        "4",
        "--master-addr",
        "10.0.0.7",
        "--master-port",
        "23456",
    ]
    found = complete_command(spec_of("python", "-u", "t.py", ranks=8), SECOND)
    assert found == ["/env/bin/python", "-m", "torch.distributed.run", *nodes, "t.py"]
    own = (
        "torchrun",
        "--nnodes={nnodes}",
        "--node-rank={node_rank}",
        "--n={local_ranks}/{ranks}",
        "{master_addr}:{port}",
        "t.py",
    )
    assert complete_command(spec_of(*own, ranks=8), SECOND) == [
        *("torchrun", "--nnodes=2", "--node-rank=1", "--n=4/8", "10.0.0.7:23456", "t.py")
    ]
    assert complete_command(spec_of(*own, ranks=8), PLACES) == [
        *("torchrun", "--nnodes=1", "--node-rank=0", "--n=8/8", "127.0.0.1:23456", "t.py")
    ]


@pytest.mark.parametrize(
    "command", [["torchrun", "--nproc-per-node={ranks}", "t.py"], ["bash", "run.sh"], ["python", "t.py", "{local_ranks}"]]
)
def test_command_that_would_start_all_ranks_on_each_node_is_an_error(command: list[str]) -> None:
    with pytest.raises(CommandError, match="on 2 nodes, but the command starts them itself"):
        complete_command(spec_of(*command, ranks=2), SECOND)


def test_complete_command_of_one_rank_needs_no_launcher() -> None:
    assert complete_command(spec_of("python", "t.py"), PLACES) == ["/env/bin/python", "t.py"]


def test_complete_command_without_command_is_an_error() -> None:
    with pytest.raises(CommandError, match="empty"):
        complete_command(spec_of(), PLACES)


def test_complete_command_without_a_config_is_an_error() -> None:
    with pytest.raises(CommandError, match="--config"):
        complete_command(spec_of("x", "{config}"), Places("p", "", "o", 1))


def test_complete_command_with_steps_but_to_the_end_is_an_error() -> None:
    with pytest.raises(CommandError, match="steps"):
        complete_command(spec_of("x", "{steps}", steps=None), PLACES)


def test_program_seed_stays_in_range() -> None:
    assert program_seed(0) == 0
    assert all(0 <= program_seed(idx) < 2**31 for idx in (1, 2147, 2148, 10**6))


def test_restarted_command_takes_the_whole_of_the_variants_own() -> None:
    own = ("torchrun", "--nproc-per-node={ranks}", "t.py", "{out}")
    assert insert_command(("{command}", "--resume"), own) == (*own, "--resume")
    assert insert_command(("python", "x.py", "--was={command}"), own) == ("python", "x.py", "--was={command}")
    assert insert_command((), own) == ()


def test_single_rank_goes_on_under_torchrun_where_several_were() -> None:
    assert complete_command(spec_of("python", "t.py"), PLACES, is_launched=True)[:3] == [
        *("/env/bin/python", "-m", "torch.distributed.run")
    ]
    assert complete_command(spec_of("python", "t.py", "{ranks}"), PLACES, is_launched=True) == ["/env/bin/python", "t.py", "1"]
