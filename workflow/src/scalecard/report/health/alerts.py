"""One fault is one alert: what a fault shows in is listed under its cause, however many measurements it slowed down."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from scalecard.report.health import advice
from scalecard.report.health.verdict import WORDS, Verdict

_ALL_TOGETHER = frozenset({"collective", "PCIe collective", "node"})
_BETWEEN_NODES = frozenset({"node pair", "node links", "collective"})  # over nodes
_OF_A_LINK = frozenset({"latency", "collective", "node", "pair", "device links"})
_OF_A_SLOT = frozenset({"latency", "PCIe collective", "host link", "PCIe pair", "PCIe errors"})
_OF_A_GPU = (
    _ALL_TOGETHER
    | _OF_A_LINK
    | _OF_A_SLOT
    | {"compute", "memory", "memory errors", "slowed down", "XID", "peer access"}
)
# What each kind of trouble explains besides itself, the worst cause first: of the same device, pair or node, and of
# whatever these take part in.
EXPLAINS: dict[str, frozenset[str]] = {
    "device fault": _OF_A_GPU | {"lost", "failed", "device fault", "wrong values"},
    "wrong values": _ALL_TOGETHER | {"wrong values"},
    "failed": frozenset(),
    "lost": _OF_A_GPU,
    "XID": frozenset({"memory errors", "NVLink errors"}),
    "memory errors": frozenset({"memory"}),
    "slowed down": _ALL_TOGETHER | {"compute", "memory"},
    "slot width": _OF_A_SLOT,
    "slot generation": _OF_A_SLOT,
    "NVLinks down": _OF_A_LINK | {"NVLink errors"},
    "NVLink errors": _OF_A_LINK,
    "PCIe errors": _OF_A_SLOT,
    "peer access": _OF_A_LINK | {"shared memory"},
    "compute": _ALL_TOGETHER | {"memory"},
    "memory": _ALL_TOGETHER,
    "host link": frozenset({"latency", "PCIe collective", "PCIe pair"}),
    "device links": _OF_A_LINK,
    "pair": frozenset({"latency", "collective", "node"}),
    "PCIe pair": frozenset({"latency", "PCIe collective"}),
    "shared memory": frozenset({"latency", "collective", "node"}),
    "socket": _BETWEEN_NODES | {"adapter errors"},
    "adapter rate": _BETWEEN_NODES,
    "adapter errors": _BETWEEN_NODES,
    "no GPUDirect": _BETWEEN_NODES,
    "node": _BETWEEN_NODES,
    "node links": _BETWEEN_NODES,
    "node pair": frozenset({"collective"}),
    "host memory": frozenset(),
    "latency": frozenset(),
    "collective": frozenset(),
    "PCIe collective": frozenset(),
    "storage": frozenset(),
    "free space": frozenset(),
}
# Nobody says how many did not fail in this way, so each is named.
NAMED_EACH = ("device fault", "wrong values", "failed")
NODE = re.compile(r"node \d+")
COLLECTIVES = ("collective", "PCIe collective")
ABOUT = {
    "compute": "computing",
    "memory": "its memory",
    "host link": "its link to the host",
    "device links": "its links to the other GPUs",
    "pair": "the link between them",
    "PCIe pair": "the way between them",
    "latency": "small copies",
    "node": "all-reduce within it",
    "node links": "its links to the other nodes",
    "node pair": "the way between them",
    "memory errors": "errors of its memory",
    "device fault": "the driver reported an error",
    "wrong values": "wrong values",
}
# What most links of one end are evidence of, if they are slow. A GPU's only PCIe link leads to the host and to peers.
OF_ENDS = {"pair": "device links", "PCIe pair": "host link", "node pair": "node links"}


def merged(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The faults, the worst first, each with what else it shows in; `verdicts` are all, also the normal ones."""
    bad = [verdict for verdict in verdicts if not verdict.fine]
    faults = [_fault(own) for own in _by_place(bad + _of_one_end(verdicts)).values()]
    faults = _everywhere(faults, verdicts)
    causes = list(EXPLAINS)
    faults.sort(key=lambda fault: (causes.index(fault.kind), WORDS.index(fault.verdict), _breadth(fault)))
    kept: list[Verdict] = []
    for fault in faults:
        cause = next((place for place, known in enumerate(kept) if _explains(known, fault)), None)
        if cause is None:
            kept.append(fault)
        else:
            seen = (*kept[cause].seen_in, fault.what, *fault.seen_in)
            kept[cause] = replace(kept[cause], seen_in=seen, low=kept[cause].low or fault.low)
    return kept


def _breadth(fault: Verdict) -> float:
    """A device comes before a pair, which comes before what nobody in particular is blamed for."""
    return len(fault.place) or math.inf


def _by_place(verdicts: Iterable[Verdict]) -> dict[tuple[object, ...], list[Verdict]]:
    """Verdicts of one kind and place are one fault, also what failed of one part; low collectives are one for all."""
    found: dict[tuple[object, ...], list[Verdict]] = {}
    for verdict in verdicts:
        where = () if verdict.kind in COLLECTIVES else verdict.place or (verdict.part,)
        found.setdefault((verdict.kind, where), []).append(verdict)
    return found


def _fault(own: Sequence[Verdict]) -> Verdict:
    """The worst of one fault's verdicts stands for all, under the name of its cause."""
    worst = min(own, key=lambda verdict: WORDS.index(verdict.verdict))
    others = tuple(_short(verdict) for verdict in own if verdict is not worst)
    worst = replace(worst, low=any(verdict.low for verdict in own))
    if worst.kind not in ABOUT:
        return replace(worst, seen_in=(*worst.seen_in, *others))
    about = f"{_in_words(worst.place or (worst.part,))}: {ABOUT[worst.kind]}"
    value = worst.value if worst.what in worst.place else f"{_short(worst)}: {worst.value}"
    return replace(worst, what=about, value=value, seen_in=(*worst.seen_in, *others))


def _in_words(place: Sequence[str]) -> str:
    """Names of devices, of which only the first has their node: "node 3's GPU 2 and GPU 5"."""
    first, *others = place
    node = "".join(first.partition("'s ")[:2]) if "'s " in first else ""
    return " and ".join([first, *(other.removeprefix(node) for other in others)])


def _short(verdict: Verdict) -> str:
    """What was measured, without the name of its place."""
    return verdict.what.removeprefix(f"{verdict.place[0]}, ") if len(verdict.place) == 1 else verdict.what


def _of_one_end(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """If most links of a device or node are slow, and links without it are not, that is its own fault."""
    found = []
    for kind, cause in OF_ENDS.items():
        own = [verdict for verdict in verdicts if verdict.kind == kind]
        ways = {verdict.place for verdict in own}
        slow = {verdict.place for verdict in own if not verdict.fine}
        for end in sorted({end for way in slow for end in way}):
            mine = [way for way in ways if end in way]
            bad = [way for way in mine if way in slow]
            if len(bad) >= 2 and 2 * len(bad) > len(mine) and _others_are_fine(end, ways, slow):
                worst = next(verdict for verdict in own if verdict.place == bad[0] and not verdict.fine)
                value = f"{len(bad)} of {len(mine)} are slow, as {worst.what}: {worst.value}"
                facts = {"what": end, "value": value, "kind": cause, "advice": advice.for_kind(cause), "place": (end,)}
                found.append(replace(worst, **facts))  # type: ignore[arg-type]
    return found


def _others_are_fine(end: str, ways: Iterable[tuple[str, ...]], slow: Iterable[tuple[str, ...]]) -> bool:
    """Whether most of the links that do not lead to this end are as they should be."""
    others = [way for way in ways if end not in way]
    return 2 * sum(way in set(slow) for way in others) < len(others)


def _everywhere(faults: Sequence[Verdict], verdicts: Sequence[Verdict]) -> list[Verdict]:
    """A trouble that most devices, pairs or nodes have is one fault of the machine; on one node only, of that node."""
    found = list(faults)
    for kind in dict.fromkeys(fault.kind for fault in faults if fault.kind not in NAMED_EACH):
        judged = {verdict.place for verdict in verdicts if verdict.kind == kind}
        same = [fault for fault in found if fault.kind == kind]
        if _most(len(same), len(judged)):
            found = [*(fault for fault in found if fault.kind != kind), _one_of(same, len(judged), ())]
            continue
        for node in sorted({node for fault in same for node in _nodes_of(fault.place)}):
            here = [fault for fault in same if _nodes_of(fault.place) == {node}]
            alike = [place for place in judged if _nodes_of(place) == {node}]
            if _most(len(here), len(alike)):
                found = [*(fault for fault in found if fault not in here), _one_of(here, len(alike), (node,))]
    return found


def _most(bad: int, judged: int) -> bool:
    return bad >= 2 and (bad == judged or (bad >= 3 and 2 * bad > judged))


def _one_of(same: Sequence[Verdict], judged: int, place: tuple[str, ...]) -> Verdict:
    first = same[0]
    return replace(
        first,
        what=f"{len(same)} of {judged}, as {first.what}",
        place=place,
        seen_in=first.seen_in + tuple(what for fault in same[1:] for what in (fault.what, *fault.seen_in)),
        low=any(fault.low for fault in same),
    )


def _explains(cause: Verdict, effect: Verdict) -> bool:
    if effect.kind not in EXPLAINS[cause.kind] or (cause.kind in NAMED_EACH and not cause.place):
        return False
    if effect.kind in (*COLLECTIVES, "node", "node pair", "node links") and not _is_node(cause):
        return _takes_part(cause, effect)
    return set(cause.place) <= set(effect.place) or not effect.place


def _takes_part(cause: Verdict, effect: Verdict) -> bool:
    """Whether what is slow includes the devices that are its cause, or their node."""
    return not effect.place or set(cause.place) <= set(effect.place) or bool(_nodes_of(cause.place) & set(effect.place))


def _is_node(verdict: Verdict) -> bool:
    return any(NODE.fullmatch(end) for end in verdict.place)


def _nodes_of(place: Iterable[str]) -> set[str]:
    """The nodes that devices are on, by their names: {'node 3'} for "node 3's GPU 2"; empty if there is only one."""
    return {end.partition("'s ")[0] for end in place if "'s " in end}
