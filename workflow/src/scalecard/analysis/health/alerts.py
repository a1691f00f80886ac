"""Every part of a machine judged, and one alert for each fault.

What a fault shows in is listed under its cause, however many measurements it slowed down.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

from scalecard.analysis import by_key
from scalecard.analysis.health import judge_state, rates
from scalecard.analysis.health.verdict import WORDS, Kind, Part, Place, Verdict
from scalecard.records.record import Result

_ALL_TOGETHER = frozenset({Kind.COLLECTIVE, Kind.PCIE_COLLECTIVE, Kind.NODE})
_BETWEEN_NODES = frozenset({Kind.NODE_PAIR, Kind.NODE_LINKS, Kind.COLLECTIVE})  # over nodes
_OF_A_LINK = frozenset({Kind.LATENCY, Kind.COLLECTIVE, Kind.NODE, Kind.PAIR, Kind.DEVICE_LINKS})
_OF_A_SLOT = frozenset({Kind.LATENCY, Kind.PCIE_COLLECTIVE, Kind.HOST_LINK, Kind.PCIE_PAIR, Kind.PCIE_ERRORS})
_OF_A_GPU = (
    _ALL_TOGETHER
    | _OF_A_LINK
    | _OF_A_SLOT
    | {Kind.COMPUTE, Kind.MEMORY, Kind.MEMORY_ERRORS, Kind.SLOWED_DOWN, Kind.XID, Kind.PEER_ACCESS}
)
# What each kind of trouble explains besides itself: of the same device, pair or node, and of what these take part in.
EXPLAINS: dict[Kind, frozenset[Kind]] = {
    Kind.DEVICE_FAULT: _OF_A_GPU | {Kind.LOST, Kind.FAILED, Kind.DEVICE_FAULT, Kind.WRONG_VALUES},
    Kind.WRONG_VALUES: _ALL_TOGETHER | {Kind.WRONG_VALUES},
    Kind.LOST: _OF_A_GPU,
    Kind.XID: frozenset({Kind.MEMORY_ERRORS, Kind.NVLINK_ERRORS}),
    Kind.MEMORY_ERRORS: frozenset({Kind.MEMORY}),
    Kind.SLOWED_DOWN: _ALL_TOGETHER | {Kind.COMPUTE, Kind.MEMORY},
    Kind.SLOT_WIDTH: _OF_A_SLOT,
    Kind.SLOT_GENERATION: _OF_A_SLOT,
    Kind.NVLINKS_DOWN: _OF_A_LINK | {Kind.NVLINK_ERRORS},
    Kind.NVLINK_ERRORS: _OF_A_LINK,
    Kind.PCIE_ERRORS: _OF_A_SLOT,
    Kind.PEER_ACCESS: _OF_A_LINK | {Kind.SHARED_MEMORY},
    Kind.COMPUTE: _ALL_TOGETHER | {Kind.MEMORY},
    Kind.MEMORY: _ALL_TOGETHER,
    Kind.HOST_LINK: frozenset({Kind.LATENCY, Kind.PCIE_COLLECTIVE, Kind.PCIE_PAIR}),
    Kind.DEVICE_LINKS: _OF_A_LINK,
    Kind.PAIR: frozenset({Kind.LATENCY, Kind.COLLECTIVE, Kind.NODE}),
    Kind.PCIE_PAIR: frozenset({Kind.LATENCY, Kind.PCIE_COLLECTIVE}),
    Kind.SHARED_MEMORY: frozenset({Kind.LATENCY, Kind.COLLECTIVE, Kind.NODE}),
    Kind.SOCKET: _BETWEEN_NODES | {Kind.ADAPTER_ERRORS},
    Kind.ADAPTER_RATE: _BETWEEN_NODES,
    Kind.ADAPTER_ERRORS: _BETWEEN_NODES,
    Kind.NO_GPUDIRECT: _BETWEEN_NODES,
    Kind.NODE: _BETWEEN_NODES,
    Kind.NODE_LINKS: _BETWEEN_NODES,
    Kind.NODE_PAIR: frozenset({Kind.COLLECTIVE}),
}
TOGETHER = (Kind.COLLECTIVE, Kind.PCIE_COLLECTIVE)
# Nobody says how many did not fail in this way, so each is named.
NAMED_EACH = (Kind.DEVICE_FAULT, Kind.WRONG_VALUES, Kind.FAILED)
OF_NODES = (*_ALL_TOGETHER, Kind.NODE_PAIR, Kind.NODE_LINKS)  # in which every device of a node takes part
ABOUT = {
    Kind.COMPUTE: "computing",
    Kind.MEMORY: "its memory",
    Kind.HOST_LINK: "its link to the host",
    Kind.DEVICE_LINKS: "its links to the other GPUs",
    Kind.PAIR: "the link between them",
    Kind.PCIE_PAIR: "the way between them",
    Kind.LATENCY: "small copies",
    Kind.NODE: "all-reduce within it",
    Kind.NODE_LINKS: "its links to the other nodes",
    Kind.NODE_PAIR: "the way between them",
    Kind.MEMORY_ERRORS: "errors of its memory",
    Kind.DEVICE_FAULT: "the driver reported an error",
    Kind.WRONG_VALUES: "wrong values",
}
# What most links of one end are evidence of, if they are slow. A GPU's only PCIe link leads to the host and to peers.
OF_ENDS = {Kind.PAIR: Kind.DEVICE_LINKS, Kind.PCIE_PAIR: Kind.HOST_LINK, Kind.NODE_PAIR: Kind.NODE_LINKS}


@lru_cache(maxsize=4)
def verdicts(result: Result) -> list[Verdict]:
    """What is said of every device, link, collective, node and counter, also if it is normal."""
    judges = (judge_state.faults, judge_state.state, judge_state.counters, rates.verdicts)
    return [verdict for judge in judges for verdict in judge(result)]


@lru_cache(maxsize=4)
def alerts(result: Result) -> list[Verdict]:
    """Only what is not normal, one for each fault, the worst first; where else a fault shows is in `seen_in`."""
    return merged(verdicts(result))


def cause_of(faults: Sequence[Verdict], kind: Kind, place: tuple[Place, ...]) -> int | None:
    """Which of these explains such trouble there, that another experiment saw; None if none does."""
    seen = Verdict(Part.HOST, kind, place, verdict="low", value="", normal="")
    for number, fault in enumerate(faults):
        same = fault.kind is kind and (not fault.place or set(fault.place) & set(place))
        if same or (place and _explains(fault, seen)):
            return number
    return None


def merged(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The faults, the worst first, each with what else it shows in; `verdicts` are all, also the normal ones."""
    bad = [*(verdict for verdict in verdicts if not verdict.fine), *_of_one_end(verdicts)]
    faults = _everywhere(
        [_fault(own, verdicts) for own in by_key((_place_of(each), each) for each in bad).values()], verdicts
    )
    kinds = list(Kind)
    # A device comes before a pair, which comes before what nobody in particular is blamed for.
    faults.sort(key=lambda f: (kinds.index(f.kind), WORDS.index(f.verdict), len(f.place) or math.inf))
    kept: list[Verdict] = []
    for fault in faults:
        cause = next((place for place, known in enumerate(kept) if _explains(known, fault)), None)
        if cause is None:
            kept.append(fault)
        else:
            seen = (*kept[cause].seen_in, fault.what, *fault.seen_in)
            kept[cause] = replace(kept[cause], seen_in=seen, low=kept[cause].low or fault.low)
    return kept


def _place_of(verdict: Verdict) -> tuple[object, ...]:
    """Verdicts of one kind and place are one fault, also what failed of one part; low collectives are one for all."""
    return verdict.kind, () if verdict.kind in TOGETHER else verdict.place or (verdict.part,)


def _fault(own: Sequence[Verdict], every: Sequence[Verdict]) -> Verdict:
    """The worst of one fault's verdicts stands for all, under the name of its cause."""
    worst = min(own, key=lambda verdict: WORDS.index(verdict.verdict))
    others = tuple(_short(verdict) for verdict in own if verdict is not worst)
    worst = replace(worst, low=any(verdict.low for verdict in own), seen_in=(*worst.seen_in, *others))
    if worst.kind in TOGETHER and (only := _only_on(own, every)):
        return replace(worst, who=only)
    if worst.kind not in ABOUT:
        return worst
    value = f"{_short(worst)}: {worst.value}" if worst.measured else worst.value
    # Of devices only the first has their node ("node 3's GPU 2 and GPU 5").
    names = [*map(str, worst.place[:1]), *(other.on_its_node for other in worst.place[1:])]
    who = f"{' and '.join(names) or worst.part}: {ABOUT[worst.kind]}"
    if worst.kind is Kind.HOST_LINK:
        near = worst.place[0].numa if worst.place else None
        who += ("" if near is None else f" (NUMA node {near})") + _one_way(own, every)
    return replace(worst, who=who, measured="", value=value)


def _only_on(own: Sequence[Verdict], every: Sequence[Verdict]) -> str:
    """'on 8 devices only ...' of collectives that are low there and normal on fewer; '' otherwise."""
    low = {verdict.num_devices for verdict in own}
    fine = [v.num_devices for v in every if v.kind is own[0].kind and v.verdict == "normal"]
    alone = fine and len(low) == 1 and max(fine) < max(low)
    return f"on {max(low)} devices only, while fewer are normal" if alone else ""


def _one_way(own: Sequence[Verdict], every: Sequence[Verdict]) -> str:
    """', to device only' of links to the host that are slow in one of the directions that were judged."""
    both = {v.direction for v in every if (v.kind, v.place) == (own[0].kind, own[0].place)}
    ways = {verdict.direction for verdict in own}
    return f", {ways.pop()} only" if len(ways) == 1 < len(both) else ""


def _short(verdict: Verdict) -> str:
    """What was measured, without the name of its only place."""
    return verdict.measured if verdict.measured and len(verdict.place) == 1 else verdict.what


def _of_one_end(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """If most links of a device or node are slow, and most of those without it are not, that is its own fault."""
    found = []
    for kind, cause in OF_ENDS.items():
        own = [verdict for verdict in verdicts if verdict.kind is kind]
        ways = dict.fromkeys(verdict.place for verdict in own)
        slow = {verdict.place: verdict for verdict in reversed(own) if not verdict.fine}
        for end in dict.fromkeys(end for way in ways for end in way):
            mine = [way for way in ways if end in way]
            bad = [way for way in mine if way in slow]
            others = [way in slow for way in ways if end not in way]
            if len(bad) >= 2 and 2 * len(bad) > len(mine) and 2 * sum(others) < len(others):
                worst = slow[bad[0]]
                share = f"all {len(mine)}" if len(bad) == len(mine) else f"{len(bad)} of {len(mine)}"
                value = f"{share} are slow, e.g. {worst.what}: {worst.value}"
                found.append(replace(worst, who=str(end), measured="", value=value, kind=cause, place=(end,)))
    return found


def _everywhere(faults: Sequence[Verdict], verdicts: Sequence[Verdict]) -> list[Verdict]:
    """A trouble that most devices, pairs or nodes have is one fault of the machine; on one node only, of that node."""
    found = list(faults)
    for kind in dict.fromkeys(fault.kind for fault in faults if fault.kind not in NAMED_EACH):
        judged = {verdict.place for verdict in verdicts if verdict.kind is kind}
        judged |= {(end,) for verdict in verdicts if OF_ENDS.get(verdict.kind) is kind for end in verdict.place}
        same = [fault for fault in found if fault.kind is kind]
        if _most(len(same), len(judged)):
            found = [*(fault for fault in found if fault.kind is not kind), _one_of(same, len(judged), ())]
            continue
        for node in sorted({node for fault in same for node in _nodes_of(fault.place)}):
            here = [fault for fault in same if _nodes_of(fault.place) == {node}]
            alike = [place for place in judged if _nodes_of(place) == {node}]
            if _most(len(here), len(alike)):
                found = [*(fault for fault in found if fault not in here), _one_of(here, len(alike), (Place(node),))]
    return _near_one_cpu(found, verdicts)


def _near_one_cpu(faults: Sequence[Verdict], verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Links to the host that are slow of all GPUs near one NUMA node, and of no other, are one fault of that."""
    links = [fault for fault in faults if fault.kind is Kind.HOST_LINK and len(fault.place) == 1]
    by_numa = by_key(((fault.place[0].node, fault.place[0].numa), fault) for fault in links)
    found = list(faults)
    for where, own in by_numa.items():
        near = {v.place for v in verdicts if v.kind is Kind.HOST_LINK and (v.place[0].node, v.place[0].numa) == where}
        if where[1] is not None and len(own) == len(near) >= 2:
            node = "" if where[0] is None else f"node {where[0]}'s "
            who = f"all {len(own)} GPUs of {node}NUMA node {where[1]}, as {own[0].what}"
            place = () if where[0] is None else (Place(where[0]),)
            one = replace(_one_of(own, len(near), place), who=who)
            found = [*(fault for fault in found if fault not in own), one]
    return found


def _most(bad: int, judged: int) -> bool:
    return bad >= 2 and (bad == judged or (bad >= 3 and 2 * bad > judged))


def _one_of(same: Sequence[Verdict], judged: int, place: tuple[Place, ...]) -> Verdict:
    first, low = same[0], any(fault.low for fault in same)
    seen = first.seen_in + tuple(what for fault in same[1:] for what in (fault.what, *fault.seen_in))
    who = f"{len(same)} of {judged}, as {first.what}"
    return replace(first, who=who, measured="", place=place, seen_in=seen, low=low)


def _explains(cause: Verdict, effect: Verdict) -> bool:
    """Whether an effect is of the same place as its cause, or includes it; a node includes all of its devices."""
    if effect.kind not in EXPLAINS.get(cause.kind, ()) or (cause.kind in NAMED_EACH and not cause.place):
        return False
    if not effect.place or set(cause.place) <= set(effect.place):
        return True
    return effect.kind in OF_NODES and any(Place(node) in effect.place for node in _nodes_of(cause.place))


def _nodes_of(place: Iterable[Place]) -> set[int]:
    """The nodes that devices are on; empty if there is only one, or whole nodes are meant."""
    return {end.node for end in place if end.node is not None and not end.is_node}
