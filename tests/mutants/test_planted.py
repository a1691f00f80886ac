"""The planted wrong answers can still be planted: the list does not rot. Whether they are caught: `make mutants`."""

import entries
import pytest
import tool
from campaign import NEITHER, PROOF, TESTS, UNFINISHED, Verdict, share, totals
from sandbox import FAILED, FAILED_CASES, nearness
from support.blocks import SMOKE

ENTRIES = entries.load()


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.wrong)
def test_it_applies_at_one_place_and_compiles(entry: entries.Entry) -> None:
    mutant = entry.mutant()
    compile(mutant.code, entry.file, "exec")
    assert entry.experiment is None or entry.experiment in SMOKE["experiments"]
    assert (entries.ROOT / "tests" / mutant.tests).is_dir()
    assert entry.wrong.endswith("."), "a sentence"


def test_each_sentence_says_something_else() -> None:
    assert len({entry.wrong for entry in ENTRIES}) == len(ENTRIES)


def test_after_some_commits_every_one_has_been_in_a_tenth() -> None:
    chosen = [entries.tenth(ENTRIES, f"{commit:040x}") for commit in range(200)]
    assert {len(each) for each in chosen} == {-(-len(ENTRIES) // 10)}
    assert {entry for each in chosen for entry in each} == set(ENTRIES)
    assert entries.tenth(ENTRIES, "a") == entries.tenth(ENTRIES, "a")


def test_what_is_named_as_equivalent_is_still_there() -> None:
    for each in tool.equivalents():
        lines = (entries.ROOT / entries.PACKAGE / each.file).read_text().splitlines()
        assert each.old in map(str.strip, lines), each
        assert each.file in tool.sources()
        assert each.why


def test_what_was_not_finished_is_neither_caught_nor_missed() -> None:
    mutant = ENTRIES[0].mutant()
    verdicts = [Verdict(mutant, caught, "", 1.0) for caught in (PROOF, TESTS, TESTS, NEITHER, UNFINISHED)]
    assert share(verdicts) == 0.75
    assert totals("all", verdicts, 0.98) == (
        "all: 3 of 4 caught, 75.0% (goal 98%): 1 by proof, 2 by tests, 1 by neither; 1 not finished, the time was over"
    )


@pytest.mark.parametrize("test", ["tests/a/test_b.py", "tests/a/test_b.py::test_c[2 x-naive]"])
def test_the_test_that_failed_is_found_in_what_pytest_prints(test: str) -> None:
    found = FAILED.search(f"F\n=== short test summary info ===\nFAILED {test} - assert 1 == 2\n1 failed in 2 s\n")
    assert found
    assert found[1] == test


@pytest.mark.parametrize(
    ("counts", "caught"), [("8 ok", False), ("22 ok, 3 skipped", False), ("7 ok, 1 failed", True), ("12 failed", True)]
)
def test_a_failed_case_is_found_in_what_an_experiment_prints(counts: str, caught: bool) -> None:
    printed = f"[ddp] 1/2 ranks that failed\n[ddp] done: {counts} -> results/failed/ddp.json\n"
    assert bool(FAILED_CASES.search(printed)) == caught


def test_the_tests_of_a_module_in_a_folder_of_a_room_come_before_the_rooms() -> None:
    mutant = next(entry for entry in ENTRIES if entry.file == "analysis/health/rates.py").mutant()
    found = {path.name: nearness(path, mutant) for path in (entries.ROOT / "tests" / "analysis").rglob("test_*.py")}
    assert found["test_health_numbers.py"] == 1, "it imports the module"
    assert found["test_health_nodes.py"] == 2
    assert found["test_limits.py"] == 3
