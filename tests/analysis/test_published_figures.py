"""Which of our values stands beside a published one, and whether every published one can stand beside one of ours."""

from typing import Any

import pytest
from fixtures.platforms import results
from scalecard.analysis import published_figures
from scalecard.analysis.published_figures import Entry, Ours, gpu_spec, is_same_card, matches, published
from scalecard.report import sections

H100 = "NVIDIA H100 80GB HBM3"
ENTRY = Entry(
    id="e",
    metric="test_accuracy",
    value=0.91,
    unit="fraction",
    gpu=None,
    gpus=1,
    settings={"batch_size": 256, "lr": 0.1, "epochs": 10, "image": [28, 28]},
    **dict.fromkeys(("note", "source", "locator", "url"), ""),
)


def entry(**changes: Any) -> Entry:
    return Entry(**{**vars(ENTRY), **changes})


@pytest.mark.parametrize(
    ("ours", "alike"),
    [
        ({}, True),
        ({"settings": {"batch_size": 256, "lr": 0.1, "epochs": 10, "image": [28, 28]}}, True),
        ({"settings": {"data": "the entry does not say"}}, True),
        *(({"settings": {name: value}}, False) for name, value in (("batch_size", 512), ("lr", 0.2), ("epochs", 9))),
        ({"settings": {"image": [64, 64]}}, False),
        ({"settings": {"lr": None}}, False),
        ({"gpus": 2}, False),
        ({"metric": "sec_per_epoch"}, False),
        ({"gpu": H100}, False),  # a card's own rate, and none is named
    ],
)
def test_an_entry_stands_beside_what_nothing_tells_from_it(ours: dict[str, Any], alike: bool) -> None:
    assert Ours(**{"metric": "test_accuracy", "value": 0.9, **ours}).is_like(ENTRY) == alike


def test_a_cards_own_rate_stands_beside_the_same_cards_by_whatever_name() -> None:
    ours = Ours(metric="test_accuracy", value=0.9, gpu=H100)
    names = (H100, "NVIDIA H100 SXM5 80GB", "NVIDIA H100 PCIe", "some card")
    assert [ours.is_like(entry(gpu=name)) for name in names] == [True, True, False, False]
    assert is_same_card("some card", "some card"), "which has no sheet"


def test_a_case_as_printed_comes_first_then_what_lacks_the_least_and_then_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = entry(includes=("loader", "synchronisation"))
    monkeypatch.setattr(published_figures, "published", lambda experiment: [whole])
    parts = [(), (), ("loader",), ("loader", "synchronisation")]
    ours = [Ours(metric="test_accuracy", value=place, includes=own) for place, own in enumerate(parts)]
    found = [matches("any", ours[:count])[0] for count in (2, 3, 4)]
    assert [match.ours.value for match in found] == [0, 2, 3]
    assert [match.besides for match in found] == [["loader", "synchronisation"], ["synchronisation"], []]


def test_of_a_series_the_value_at_our_size_is_taken() -> None:
    """Azure's eight H100s: 361.78 GB/s at 64 MiB, 423.38 at 256; NCCL's maintainer: 370 at large sizes."""
    sizes = {2**28: [423.38, 370], 2**26: [361.78, 370], 2**28 + 4: [370]}
    for size, rates in sizes.items():
        ours = Ours(metric="bus_bandwidth", value=400, gpus=8, settings={"bytes": size}, gpu=H100)
        assert [match.entry.value for match in matches("allreduce", [ours])] == rates


def ours_of(name: str) -> dict[str, list[Ours]]:
    """Of a made-up platform, by experiment."""
    found = {result.experiment: result for result in results(name)}
    able = {name: sections.load(name) for name in found}
    return {name: list(one.published(found[name])) for name, one in able.items() if hasattr(one, "published")}


def test_no_entry_is_dead() -> None:
    """Each is of an experiment whose section gives its metric; of Llama, test_strategy_table.py has a result."""
    given = {name: {each.metric for each in ours} for name, ours in ours_of("fixture-8xh100").items()}
    given["strategies"] = {"tokens_per_second_per_gpu", "mfu"}
    every = published_figures._read("published.yaml")["entries"]
    assert {one["experiment"] for one in every} <= set(sections.names())
    strict = [(name, one) for name in sections.names() for one in published(name)]
    assert [one.id for name, one in strict if one.metric not in given.get(name, set())] == []
    assert len(strict) > 100
    assert all(isinstance(one.gpus, int) for _, one in strict)
    used = {one["source"] for one in every}
    assert used == set(published_figures._read("published.yaml")["sources"])


def test_a_cards_own_rates_are_of_cards_whose_drivers_name_is_known() -> None:
    """A name that no driver prints would never be found."""
    assert [one.id for name in ("allreduce", "health") for one in published(name) if not gpu_spec(one.gpu or "")] == []


def test_all_of_the_texts_stands_beside_a_machine_with_enough_gpus() -> None:
    for experiment, ours in ours_of("fixture-8xh100").items():
        beside = {match.entry.id for match in matches(experiment, ours)}
        assert [one.id for one in published(experiment) if one.kind == "text" and one.id not in beside] == []
