"""A result over several nodes, taken apart: what each node's own facts are, and whose fault explains what."""

from dataclasses import replace

from health_boxes import Box
from scalecard.report.health.alerts import merged, verdicts
from scalecard.report.health.by_node import Place, views
from scalecard.report.health.verdict import Kind, Part, Verdict


def test_a_node_has_its_own_facts_where_they_differ_from_the_first_ones() -> None:
    result = Box(nodes=2).result()
    differs = {"gpus.0.pcie_width": 8, "missing.gpus.1.ecc": "not supported"}
    nodes = [{"host": "aaaaaaaa", "differs": {}}, {"host": "bbbbbbbb", "differs": differs}]
    first, second = views(replace(result, environment={**result.environment, "nodes": nodes}))
    assert first.result.environment["gpus"] == result.environment["gpus"]
    assert second.result.environment["gpus"][0]["pcie_width"] == 8
    assert second.result.environment["gpus"][1:] == result.environment["gpus"][1:]
    assert second.result.environment["missing"]["gpus.1.ecc"] == "not supported"
    assert result.environment["gpus"][0]["pcie_width"] != 8, "the result itself is left as it was"


def test_a_slow_card_explains_slow_collectives_of_its_own_node_alone() -> None:
    def verdict(kind: Kind, place: Place) -> Verdict:
        return Verdict(part=Part.COMPUTE, value="1", normal="2", verdict="low", kind=kind, place=(place,))

    slow = Place(node=0, device=1)
    card = verdict(Kind.COMPUTE, slow)
    own, other = verdict(Kind.NODE, Place(0)), verdict(Kind.NODE, Place(1))
    fine = [replace(verdict(Kind.NODE, Place(number)), verdict="normal") for number in range(2, 6)]
    assert [alert.place for alert in merged([card, own, *fine])] == [(slow,)]
    assert [alert.place for alert in merged([card, other, *fine])] == [(slow,), (Place(1),)]


def test_what_is_said_of_a_result_is_derived_once_and_of_each_result_anew() -> None:
    one, other = Box(nodes=2).result(), Box(nodes=3).result()
    assert views(one) is views(one)
    assert verdicts(one) is verdicts(one)
    assert [len(views(result)) for result in (one, other, one)] == [2, 3, 2]
