"""Commits of which the program reads nothing: from real git, real processes and their read sets to fewer probes."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisect_train.changes.space import ChangeSpace, build_space
from bisect_train.changes.untouched import FileChange
from bisect_train.coordinator import Coordinator, Ended, load_state
from bisect_train.coordinator.unread import Unread
from bisect_train.core.changes import GOOD_END, DataLink, Point
from bisect_train.core.probe import MetricPattern, ProbeJob, ProbeResult, ProbeSpec, Rung
from bisect_train.core.question import Fixup, Metric, Question
from bisect_train.core.reads import ReadSet
from bisect_train.store.contract import PROBE_FINISHED
from bisect_train.store.memory import MemoryStore
from bisect_train_workers.injection import RECORDER_FOLDER
from bisect_train_workers.simulated import SimulatedExecutor, SimulatedRun
from tests.support.git_repos import UserRepo, question_of
from tests.support.probes import make_settings, result_of
from tests.support.properties import examples

PROGRAM = """\
import random, settings, helper
random.seed(7)
for step in range(4):
    print("loss", settings.LEVEL + random.random() / 50)
"""
CULPRIT = 13
FILES = {
    "train.py": PROGRAM,
    "settings.py": "LEVEL = 1.0\n",
    "helper.py": "",
    "tests/test_a.py": "",
    "docs/a.md": "",
    "old.py": "",
}
READS = ReadSet(("helper.py", "settings.py", "train.py"), searched=("",))


@dataclass(frozen=True)
class Range:
    """A repository, its commits from the oldest, and the folder of its mirror."""

    repo: UserRepo
    commits: list[str]
    home: Path

    def question(self, **more: object) -> Question:
        """Return the question about all of it."""
        asked = question_of(self.commits[0], self.commits[-1])
        patterns = (MetricPattern("loss", r"loss ([0-9.]+)"),)
        run = make_settings(patterns=patterns, needs_recorder=False)
        asked = replace(asked, repo=str(self.repo.path), settings=run, rung=Rung(None), command=("python", "train.py"))
        return replace(asked, metric=Metric("loss"), **more)  # type: ignore[arg-type]

    def space(self, question: Question | None = None) -> ChangeSpace:
        """Return its changes."""
        return build_space(self.repo.open(self.home), question or self.question())


def build(folder: Path, commits: list[dict[str, str | None]]) -> Range:
    """Write a repository: a first commit, then these changes of files."""
    repo = UserRepo.create(folder / "repo")
    made = [repo.commit(FILES, message="first")]
    for idx, files in enumerate(commits):
        for name in [name for name, text in files.items() if text is None]:
            (repo.path / name).unlink()
        made.append(repo.commit({name: text for name, text in files.items() if text is not None}, message=f"commit {idx}"))
    return Range(repo, made, folder / "home")


def history() -> list[dict[str, str | None]]:
    """Return 24 commits: one makes it worse, three touch what is read, twenty do not."""
    commits: list[dict[str, str | None]] = []
    for idx in range(24):
        if idx == CULPRIT:
            commits.append({"settings.py": "LEVEL = 2.0\n"})
        elif idx in (4, 10, 19):
            commits.append({"helper.py": f"PART = {idx}\n"})
        else:
            unread = [{"docs/a.md": f"{idx}"}, {"tests/test_a.py": f"# {idx}"}, {f"docs/{idx}.md": ""}, {"old.py": f"# {idx}"}]
            commits.append({**unread[idx % 4]})
    return commits


@pytest.fixture(scope="module")
def long_range(tmp_path_factory: pytest.TempPathFactory) -> Range:
    return build(tmp_path_factory.mktemp("range"), history())


def drive(asked: Range, question: Question, store: MemoryStore, folder: Path) -> tuple[str, Ended]:
    """Run a bisection whose probes are real processes with the real recorder, one at a time."""
    name = store.create(question.to_json(), title="unread")

    def script(job: ProbeJob) -> SimulatedRun:
        result = result_of(job, folder, recorder=RECORDER_FOLDER)
        return SimulatedRun(result.fingerprint, result=result)

    with store.lock(name):
        coordinator = Coordinator(
            question,
            bisection_id=name,
            space=asked.space(question),
            store=store,
            executor=SimulatedExecutor(script, slots=1),
            clock=lambda: 0.0,
        )
        return name, coordinator.run()


def num_searched(store: MemoryStore, name: str, num: int) -> int:
    """Return how many runs the search itself took."""
    specs = [event.data["spec"] for event in store.events(name) if event.kind == PROBE_FINISHED]
    inner = {str(version) for version in range(1, num)}
    return sum(spec["attempt"] == 0 and spec["part"] == 0 and spec["point"] in inner for spec in specs)


def test_bisection_among_unread_commits_gives_the_answer_of_no_prune_with_fewer_probes(
    long_range: Range, tmp_path: Path
) -> None:
    stores, found = [MemoryStore(), MemoryStore()], []
    for store, is_pruning in zip(stores, (True, False), strict=True):
        question = long_range.question()
        question = replace(question, limits=replace(question.limits, prune=is_pruning))
        name, ended = drive(long_range, question, store, tmp_path / "node")
        space = long_range.space(question)
        assert (ended.answer.status, [item.changes for item in ended.answer.culprits]) == ("isolated", [(CULPRIT,)])
        rebuilt = load_state(store, name, question).plan(question, space)
        assert (rebuilt.answer, rebuilt.inert) == (ended.answer, ended.plan.inert), "what is stored gives the same plan"
        found.append((ended, num_searched(store, name, len(space.changes))))
    (pruned, few), (plain, many) = found
    unread = frozenset(range(24)) - {4, 10, CULPRIT, 19}
    assert plain.plan.inert == frozenset()
    assert pruned.plan.inert and pruned.plan.inert <= unread
    assert few <= 2 < many
    assert pruned.num_probes < plain.num_probes


def test_changes_are_unread_around_each_version_up_to_the_next_that_is_touched(long_range: Range) -> None:
    unread = Unread(long_range.question(), long_range.space())
    assert unread.changes([]) == frozenset()
    assert unread.changes([(Point(7), READS)]) == frozenset(range(5, 10)), "from version 7 to both sides"
    assert unread.changes([(Point(5), READS)]) == frozenset(range(5, 10)), "from version 5 upwards"
    assert unread.changes([(Point(10), READS)]) == frozenset(range(5, 10)), "from version 10 downwards"
    assert unread.changes([(Point(0), READS), (Point(24), READS)]) >= {*range(4), *range(20, 24)}


def test_only_versions_whose_runs_all_told_everything_count(long_range: Range) -> None:
    unread = Unread(long_range.question(), long_range.space())
    for told in ([(Point(7), None)], [(Point(7), READS), (Point(7), None)], [(Point(7), ReadSet(doubts=("os.fork",)))]):
        assert unread.changes(told) == frozenset()
    other = replace(READS, files=(*READS.files, "tests/test_a.py"))
    assert unread.changes([(Point(7), READS), (Point(7), other)]) == {6, 7, 8}, "what any of its runs reads is read"
    for point in (GOOD_END, Point(7, plus=(9,)), Point(24, minus=(3,))):
        assert unread.changes([(point, READS)]) == frozenset()


def test_documentation_is_unread_where_neither_end_reads_any(long_range: Range) -> None:
    unread = Unread(long_range.question(), long_range.space())
    inner = unread.changes([(Point(0), READS), (Point(24), READS)]) & frozenset(range(5, 19))
    assert inner == {idx for idx in range(5, 19) if idx % 4 in (0, 2) and idx not in (4, 10, CULPRIT)}
    reader = replace(READS, files=(*READS.files, "docs/a.md"))
    assert not unread.changes([(Point(0), READS), (Point(24), reader)]) & frozenset(range(5, 19))
    assert not unread.changes([(Point(0), READS)]) & frozenset(range(5, 19))


def test_questions_in_which_others_read_the_checkout_have_no_unread_changes(long_range: Range) -> None:
    told = [(Point(7), READS)]
    base = long_range.question()
    link = DataLink("/somewhere", "docs/corpus")
    for question, expected in [
        (replace(base, limits=replace(base.limits, prune=False)), set()),
        (replace(base, settings=replace(base.settings, setup=(("true",),))), set()),
        (replace(base, settings=replace(base.settings, judge=("true",))), set()),
        (replace(base, range=replace(base.range, first_parent=False)), set(range(5, 10))),
    ]:
        assert Unread(question, long_range.space(question)).changes(told) == expected
    patch = "--- a/docs/a.md\n+++ b/docs/a.md\n@@ -0,0 +1 @@\n+x\n"
    fixed = replace(base, fixups=(Fixup("fix.patch", patch),))
    assert Unread(fixed, long_range.space(fixed)).changes(told) == frozenset(), "whether a patch applies may hang on any file"
    linked = replace(base, settings=replace(base.settings, links=(link,)))
    assert Unread(linked, long_range.space(linked)).changes(told) == set(range(5, 10))
    over = replace(base, settings=replace(base.settings, links=(replace(link, target="docs"),)))
    assert not Unread(over, long_range.space(over)).changes(told) & {6, 8}, "new documentation where data are linked"


def test_walk_reads_the_history_only_as_far_as_it_is_unread(long_range: Range, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bisect_train.coordinator.unread.BLOCK", 2)
    monkeypatch.setattr("bisect_train.coordinator.unread.LONG_BLOCKS", 2)
    monkeypatch.setattr("bisect_train.coordinator.unread.MAX_WALK", 3)
    space = long_range.space()
    asked: list[range] = []
    monkeypatch.setattr(type(space), "file_changes", _noting(type(space).file_changes, asked))
    unread = Unread(long_range.question(), space)
    assert unread.changes([(Point(8), READS)]) == {5, 6, 7, 8, 9}
    assert {idx for block in asked for idx in block} == set(range(4, 12))
    num_asked = len(asked)
    assert unread.changes([(Point(8), READS)]) == {5, 6, 7, 8, 9}
    assert len(asked) == num_asked, "nothing is looked up twice"


def _noting(original, asked: list[range]):  # type: ignore[no-untyped-def]
    def file_changes(self: ChangeSpace, first: int, last: int):  # type: ignore[no-untyped-def]
        asked.append(range(first, last))
        return original(self, first, last)

    return file_changes


def test_file_changes_tell_status_modes_and_whether_folders_stay(tmp_path: Path) -> None:
    asked = build(tmp_path, [{"new/a b.md": "", "docs/b.md": ""}, {"new/a b.md": None, "old.py": None}, {"x\ny.md": "1"}])
    repo = asked.repo
    (repo.path / "helper.py").chmod(0o755)
    (repo.path / "link").symlink_to("train.py")
    repo.git("add", "-A")
    repo.git("commit", "-q", "-m", "modes")
    repo.git("commit", "-q", "--allow-empty", "-m", "nothing")
    repo.git("mv", "settings.py", "renamed.py")
    repo.git("commit", "-q", "-m", "rename")
    commits = repo.git("rev-list", "--reverse", "HEAD").split()
    space = Range(repo, commits, asked.home).space()
    found = space.file_changes(0, len(space.changes))
    plain, none = "100644", "000000"
    assert [set(item or ()) for item in found] == [
        {FileChange("docs/b.md", "A", none, plain, True), FileChange("new/a b.md", "A", none, plain, False)},
        {FileChange("new/a b.md", "D", plain, none, False), FileChange("old.py", "D", plain, none, True)},
        {FileChange("x\ny.md", "A", none, plain, True)},
        {FileChange("helper.py", "M", plain, "100755"), FileChange("link", "A", none, "120000", True)},
        set(),
        {FileChange("settings.py", "D", plain, none, True), FileChange("renamed.py", "A", none, plain, True)},
    ]
    assert space.file_changes(1, 3) == found[1:3]


def test_file_changes_of_a_merge_are_those_to_its_first_parent_and_side_branches_end_the_main_line(tmp_path: Path) -> None:
    asked = build(tmp_path, [{"docs/a.md": "1"}])
    repo = asked.repo
    repo.git("checkout", "-q", "-b", "side")
    repo.commit({"side.py": ""}, message="side 1")
    repo.commit({"docs/side.md": ""}, message="side 2")
    repo.git("checkout", "-q", "main")
    repo.commit({"helper.py": "1"}, message="main")
    repo.git("merge", "-q", "--no-ff", "-m", "merge", "side")
    ends = Range(repo, [asked.commits[0], repo.git("rev-parse", "HEAD")], asked.home)
    space = ends.space()
    assert (len(space.changes), space.num_main_line) == (3, 3)
    assert {item.path for item in space.file_changes(2, 3)[0] or ()} == {"side.py", "docs/side.md"}
    question = ends.question()
    whole = replace(question, range=replace(question.range, first_parent=False))
    assert (len(ends.space(whole).changes), ends.space(whole).num_main_line) == (5, 2), "then come states nobody committed"


def test_file_changes_with_a_missing_object_are_unknown(tmp_path: Path) -> None:
    asked = build(tmp_path, [{"docs/a.md": "1"}, {"docs/a.md": "2"}, {"docs/a.md": "3"}])
    space = asked.space()
    tree = asked.repo.git("rev-parse", f"{asked.commits[2]}^{{tree}}")
    asked.repo.git("config", "gc.auto", "0")
    (asked.repo.path / ".git/objects" / tree[:2] / tree[2:]).unlink()
    assert space.file_changes(0, 3) == [None, None, None]
    assert Unread(asked.question(), space).changes([(Point(0), READS), (Point(3), READS)]) == frozenset()


PIECES = (
    "train.py",
    "helper.py",
    "old.py",
    "docs/a.md",
    "docs/new.md",
    "tests/test_a.py",
    "tests/test_new.py",
    "data.json",
    "a.yaml",
)


@settings(max_examples=examples(4), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PIECES), st.booleans()), min_size=1, max_size=6), st.data())
def test_versions_that_unread_changes_part_print_the_same(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, bool]], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("drawn")
    present, commits = set(FILES), []
    for idx, (name, is_lost) in enumerate(steps):
        text = PROGRAM + f"print({idx})\n" if name == "train.py" else f"# {idx}\n"
        is_lost = is_lost and name in present and name not in ("train.py", "helper.py")
        commits.append({name: None if is_lost else text})
        present ^= {name} if is_lost or name not in present else set()
    asked = build(folder, commits)
    space, question = asked.space(), asked.question()
    version = data.draw(st.integers(0, len(commits)))

    def result(at: int) -> ProbeResult:
        variant = space.variant(Point(at))
        job = ProbeJob(f"v{at}", ProbeSpec(variant, question.rung), question.settings, "repo", space.packs(variant))
        return result_of(job, folder / "node", recorder=RECORDER_FOLDER)

    here = result(version)
    assert here.fingerprint.reads is not None and here.fingerprint.reads.is_complete
    unread = Unread(asked.question(), space).changes([(Point(version), here.fingerprint.reads)])
    for idx in unread:
        other = idx if idx < version else idx + 1
        assert result(other).log_tail == here.log_tail
    shutil.rmtree(folder)
