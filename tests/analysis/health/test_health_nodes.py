"""A result over several nodes, taken apart: what each node's own facts are, and whose fault explains what."""

from dataclasses import replace

from scalecard.analysis.health.alerts import alerts, merged, verdicts
from scalecard.analysis.health.verdict import Kind, Part, Place, Verdict, views
from support.health_boxes import Box


def test_a_node_has_its_own_facts_where_they_differ_from_the_first_ones() -> None:
    result = Box(nodes=2).result()
    width = {"path": ["gpus", 0, "pcie_width"], "value": 8}
    differs = [width, {"path": ["missing", "gpus.1.ecc"], "value": "not supported"}]
    nodes = [{"host": "aaaaaaaa", "differs": []}, {"host": "bbbbbbbb", "differs": differs}]
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


def test_links_of_one_gpu_on_each_of_several_nodes_are_as_many_faults() -> None:
    """Of 32 GPUs three have slow links: that is no trouble of most."""
    slow = Box(switched=18, pairs={(min(4, other), max(4, other)): 0.5 for other in range(8) if other != 4})
    found = alerts(Box(switched=18, nodes=4, at=dict.fromkeys((1, 2, 3), slow)).result())
    assert [alert.what for alert in found] == [
        f"node {node}'s GPU 4: its links to the other GPUs" for node in (1, 2, 3)
    ]
    assert "e.g. node 1's GPU 0 to 4, 1 GiB, alone" in found[0].value, (
        "the first of the slow links, whatever their order"
    )


def test_a_device_a_node_and_their_parts_have_names() -> None:
    places = [Place(device=3), Place(2, device=3), Place(2, device=3, worker=True), Place(2), Place(2, part="storage")]
    names = ["GPU 3", "node 2's GPU 3", "node 2's worker 3", "node 2", "node 2's storage"]
    assert [str(place) for place in places] == names
