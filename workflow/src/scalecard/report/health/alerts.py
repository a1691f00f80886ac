"""One fault is one alert: what a fault shows in is listed under its cause, however many measurements it slowed down."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from scalecard.report.health import advice
from scalecard.report.health.verdict import WORDS, Verdict

_ALL_TOGETHER = frozenset({"collective", "PCIe collective", "node"})
_BETWEEN_NODES = frozenset({"node pair", "node links", "collective"})
_OF_A_LINK = frozenset({"latency", "collective", "node", "pair", "device links"})
_OF_A_SLOT = frozenset({"latency", "PCIe collective", "host link", "PCIe pair", "PCIe errors"})
# What each kind of trouble explains besides itself, the worst cause first: of the same device, pair or node, and of
# whatever these take part in.
EXPLAINS: dict[str, frozenset[str]] = {
    "lost": _ALL_TOGETHER | _OF_A_LINK | _OF_A_SLOT | {"compute", "memory", "slowed down", "XID", "peer access"},
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
}
COLLECTIVES = ("collective", "PCIe collective")
ABOUT = {
    "compute": "computing",
    "memory": "its memory",
    "host link": "its link to the host",
    "device links": "its links to the other GPUs",
    "pair": "the link between them",
    "PCIe pair": "the way between them",
    "latency": "small copies between them",
    "node": "all-reduce within it",
    "node links": "its links to the other nodes",
    "node pair": "the way between them",
    "memory errors": "errors of its memory",
}
# What most links of one end are evidence of, if they are slow. A GPU's only PCIe link leads to the host and to peers.
OF_ENDS = {"pair": "device links", "PCIe pair": "host link", "node pair": "node links"}


def merged(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The faults, the worst first, each with what else it shows in; `verdicts` are all, also the normal ones."""
    bad = [verdict for verdict in verdicts if not verdict.fine]
    faults = [_fault(own) for own in _by_place(bad + _of_one_end(verdicts)).values()]
    faults = _everywhere(faults, verdicts)
    causes = list(EXPLAINS)
    faults.sort(key=lambda fault: (causes.index(fault.kind), WORDS.index(fault.verdict)))
    kept: list[Verdict] = []
    for fault in faults:
        cause = next((place for place, known in enumerate(kept) if _explains(known, fault)), None)
        if cause is None:
            kept.append(fault)
        else:
            seen = (*kept[cause].seen_in, fault.what, *fault.seen_in)
            kept[cause] = replace(kept[cause], seen_in=seen, low=kept[cause].low or fault.low)
    return kept


def _by_place(verdicts: Iterable[Verdict]) -> dict[tuple[object, ...], list[Verdict]]:
    """Verdicts of one kind and place are one fault; low collectives are one whoever takes part."""
    found: dict[tuple[object, ...], list[Verdict]] = {}
    for verdict in verdicts:
        where = () if verdict.kind in COLLECTIVES else verdict.place
        found.setdefault((verdict.kind, where), []).append(verdict)
    return found


def _fault(own: Sequence[Verdict]) -> Verdict:
    """The worst of one fault's verdicts stands for all, under the name of its cause."""
    worst = min(own, key=lambda verdict: WORDS.index(verdict.verdict))
    others = tuple(_short(verdict) for verdict in own if verdict is not worst)
    worst = replace(worst, low=any(verdict.low for verdict in own))
    if worst.kind not in ABOUT:
        return replace(worst, seen_in=(*worst.seen_in, *others))
    about = f"{' and '.join(worst.place)}: {ABOUT[worst.kind]}"
    value = worst.value if worst.what in worst.place else f"{_short(worst)}: {worst.value}"
    return replace(worst, what=about, value=value, seen_in=(*worst.seen_in, *others))


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
    """A trouble that most devices, pairs or nodes have is one fault of the machine."""
    found = list(faults)
    for kind in dict.fromkeys(fault.kind for fault in faults):
        same = [fault for fault in found if fault.kind == kind]
        judged = {verdict.place for verdict in verdicts if verdict.kind == kind}
        if len(same) >= 2 and (len(same) == len(judged) or (len(same) >= 3 and 2 * len(same) > len(judged))):
            first = same[0]
            others = tuple(what for fault in same[1:] for what in (fault.what, *fault.seen_in))
            everywhere = replace(
                first,
                what=f"{len(same)} of {len(judged)}, as {first.what}",
                place=(),
                seen_in=first.seen_in + others,
                low=any(fault.low for fault in same),
            )
            found = [fault for fault in found if fault.kind != kind] + [everywhere]
    return found


def _explains(cause: Verdict, effect: Verdict) -> bool:
    if effect.kind not in EXPLAINS[cause.kind]:
        return False
    if effect.kind in (*COLLECTIVES, "node", "node pair", "node links") and not _is_node(cause):
        return _takes_part(cause, effect)
    return set(cause.place) <= set(effect.place) or not effect.place


def _takes_part(cause: Verdict, effect: Verdict) -> bool:
    """Devices and adapters are described of the first node."""
    return not effect.place or set(cause.place) <= set(effect.place) or "node 0" in effect.place


def _is_node(verdict: Verdict) -> bool:
    return any(end.startswith("node") for end in verdict.place)
