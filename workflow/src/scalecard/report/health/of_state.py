"""Verdicts on what the hardware says of itself: lost GPUs, slots, links that are up, slow clocks, and NCCL's ways."""

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median

from scalecard.records.record import Record, Result
from scalecard.report import links, reference, units
from scalecard.report.health import advice, load, measured
from scalecard.report.health.by_node import View, views
from scalecard.report.health.verdict import Verdict

OWN = ("compute", "memory", "host link", "load")  # parts that every device has
LEAST_FREE = 10 * 2**30  # bytes; data and checkpoints need more
LAPTOP = "Laptop GPU"  # in the name of a GPU that is built into one
CHEAP = ("GeForce", "TITAN")  # cards to which network adapters cannot write


def judged(result: Result) -> Iterator[Verdict]:
    """What each device, and the machine, says of itself."""
    every = views(result)
    for at in every:
        yield from _lost(at)
        yield from _slots(at)
        yield from _nvlinks(at)
        yield from _peer_access(at)
        yield from _host(at)
    yield from _loads(every)
    yield from _adapters(every)
    yield from _ways(result)


def _devices(at: View) -> int:
    return len(at.result.environment["gpus"]) or int(at.result.environment["machine"]["num_devices"])


def _lost(at: View) -> Iterator[Verdict]:
    """A device of which nothing was measured that was measured of others, or a card that does not answer."""
    seen = {record.case.get("device") for part in OWN for record in at.result.select("time", part=part)}
    gone = [at.device(device) for device in range(_devices(at)) if seen and device not in seen]
    silent = [key for key in at.result.environment["missing"] if key.startswith("gpus.") and key.count(".") == 1]
    gone += [at.name(f"card {key.removeprefix('gpus.')} of the PCI bus") for key in silent]
    for lost in gone:
        yield Verdict(
            part="compute",
            what=lost,
            value="lost: nothing was measured of it",
            normal=f"{len(seen) or 'other'} devices were measured",
            verdict="errors",
            advice=advice.for_kind("lost"),
            kind="lost",
            place=(lost,),
        )


def _slots(at: View) -> Iterator[Verdict]:
    """The width and the generation of each card's slot, as seen while something was copied."""
    gpus = at.result.environment["gpus"]
    seen = {device: _seen(at, device) for device in range(len(gpus))}
    for device, gpu in enumerate(gpus):
        spec = reference.gpu_spec(gpu["name"])
        if spec and spec.host_link:
            continue  # its way to the host is another
        alike = [seen[other] for other, its in enumerate(gpus) if its["name"] == gpu["name"]]
        for place, (kind, most) in enumerate((("slot generation", "pcie_gen_max"), ("slot width", "pcie_width_max"))):
            found, usual = seen[device][place], _usual([own[place] for own in alike])
            if found:
                yield _slot(at.device(device), kind, found, max(gpu[most] or 0, usual))


def _seen(at: View, device: int) -> tuple[int, int]:
    """(generation, width) at their highest under load, 0 if it is not known: an idle card lowers its generation."""
    records = at.result.select("time", part="host link", device=device)
    states = [e.state.gpus[device] for r in records for e in r.telemetry if e.state and device < len(e.state.gpus)]
    width = max((state.pcie_width or 0 for state in states), default=0)
    generation = max((state.pcie_gen or 0 for state in states), default=0)
    return generation, width or at.result.environment["gpus"][device]["pcie_width"] or 0


def _usual(values: Sequence[int]) -> int:
    """What most cards of a kind have, so that one in a slower slot stands out even if its driver knows no better."""
    ((value, count),) = Counter(values).most_common(1)
    return value if count > len(values) / 2 else 0


def _slot(who: str, kind: str, found: int, best: int) -> Verdict:
    shown, could = (f"x{found}", f"x{best}") if kind == "slot width" else (f"PCIe {found}", f"PCIe {best}")
    fine = found >= best
    return Verdict(
        part="host links",
        what=f"{who}, {kind}",
        value=f"{shown} instead of {could}" if not fine else shown,
        normal=f"{could} is what card and slot can do",
        verdict="normal" if fine else "low",
        advice="" if fine else advice.for_kind(kind),
        kind=kind,
        place=(who,),
    )


def _nvlinks(at: View) -> Iterator[Verdict]:
    """As many as the others have; cards without a bridge have none, which is no fault."""
    gpus = at.result.environment["gpus"]
    for device, gpu in enumerate(gpus):
        alike = [its["nvlinks"] for its in gpus if its["name"] == gpu["name"] and its["nvlinks"]]
        if not gpu["nvlinks"] or not alike:
            continue
        who, usual = at.device(device), int(median(alike))
        fine = gpu["nvlinks"] >= usual
        yield Verdict(
            part="GPU links",
            what=f"{who}, NVLinks",
            value=f"{gpu['nvlinks']} up",
            normal=f"{usual} are up on the others",
            verdict="normal" if fine else "low",
            advice="" if fine else advice.for_kind("NVLinks down"),
            kind="NVLinks down",
            place=(who,),
        )


def _peer_access(at: View) -> Iterator[Verdict]:
    """A GPU must be able to write to another one's memory where NVLinks lead there."""
    off = sorted(
        {
            tuple(sorted((measured.number(r, "source"), measured.number(r, "target"))))
            for r in at.result.select("time", part="device link", peer=False)
        }
    )
    for a, b in off:
        if links.nvlinks(at.result, a, b):
            yield Verdict(
                part="GPU links",
                what=f"{at.device(a)} and {b}, peer access",
                value="off, though NVLinks lead there",
                normal="peers write to each other's memory",
                verdict="low",
                advice=advice.for_kind("peer access"),
                kind="peer access",
                place=(at.device(a), at.device(b)),
            )


def _host(at: View) -> Iterator[Verdict]:
    """Room where images are kept, and the CPU's governor: which of them are slow depends on the driver."""
    for record in at.result.select("free_space"):
        low = record.median < LEAST_FREE
        yield Verdict(
            part="host",
            what=at.name("free space in data_dir"),
            value=units.count_bytes(record.median),
            normal=f"at least {units.count_bytes(LEAST_FREE)}",
            verdict="low" if low else "normal",
            advice=advice.for_kind("free space") if low else "",
            kind="free space",
            place=(at.name("free space"),),
        )
    facts = at.result.environment
    governor = f", governor {facts['cpu_governor']}" if facts["cpu_governor"] else ""
    yield Verdict(
        part="host",
        what=at.name("cores"),
        value=f"{facts['machine']['cores']}{governor}",
        normal="nothing is known to compare it with",
        verdict="not judged",
        place=(at.name("cores"),),
    )


def _loads(every: Sequence[View]) -> Iterator[Verdict]:
    """Whether a sustained load slowed a device down. A power cap is normal, and a laptop's heat."""
    known = [(at, record, load.course(record)) for at in every for record in at.result.select("time", part="load")]
    usual = median(course.at_the_end for _, _, course in known) if known else 1.0
    for at, record, course in known:
        device, gpus = measured.number(record, "device"), at.result.environment["gpus"]
        in_laptop = device < len(gpus) and LAPTOP in gpus[device]["name"]
        reasons = load.held_back(record, device, in_laptop=in_laptop)
        slowed = bool(reasons) or course.at_the_end < load.FALL * usual
        yield Verdict(
            part="compute",
            what=f"{at.device(device)}, sustained load",
            value=", ".join([_course(course), *_heat(record, device, reasons)]),
            normal=f"the usual rate at its end is {100 * usual:.0f} % of the first, and nothing but a power cap"
            + (" and the driver's limit of heat" if in_laptop else ""),
            verdict="slowed down" if slowed else "normal",
            advice=advice.for_kind("slowed down") if slowed else "",
            kind="slowed down",
            place=(at.device(device),),
        )


def _course(course: load.Course) -> str:
    if course.fell_after is None:
        return f"no fall by 5 % in {course.seconds:.3g} s"
    return f"fell by 5 % after {course.fell_after:.3g} s, to {100 * course.at_the_end:.0f} %"


def _heat(record: Record, device: int, reasons: dict[str, float]) -> Iterator[str]:
    degrees = load.highest_temperature(record, device)
    yield from [f"{degrees:.0f} °C"] if degrees is not None else []
    yield from (f"{reason} in {100 * share:.0f} % of the readings" for reason, share in reasons.items())


def _adapters(every: Sequence[View]) -> Iterator[Verdict]:
    """The line rate of each InfiniBand port beside that of the same port on the other nodes: ports may differ."""
    known = [(at, str(r.case["adapter"]), r.median) for at in every for r in at.result.select("rate", part="adapter")]
    for at, port, rate in known:
        usual = _usual([int(theirs) for _, other, theirs in known if other == port])
        compared, fine = len(every) > 1 and usual > 0, rate >= usual
        yield Verdict(
            part="network",
            what=f"{at.name(port)}, line rate",
            value=f"{rate * 8 / 1e9:.0f} Gbit/s",
            normal=f"{usual * 8 / 1e9:.0f} Gbit/s on most nodes" if compared else "nothing is known to compare it with",
            verdict="not judged" if not compared else "normal" if fine else "low",
            advice=advice.for_kind("adapter rate") if compared and not fine else "",
            kind="adapter rate",
            place=(at.name(port),),
        )


def _ways(result: Result) -> Iterator[Verdict]:
    """What NCCL uses between nodes and within one, by its own word."""
    paths, gpus = result.environment["nccl_paths"], result.environment["gpus"]
    adapters = any("adapter" in record.case for record in result.records)
    pairs = [count for row in result.environment["nvlink_pairs"] for count in row if count is not None]
    able = bool(gpus) and not any(word in gpus[0]["name"] for word in CHEAP)
    troubles = {
        "socket": ("network", "NET/Socket" in paths and adapters, "TCP sockets, although there is InfiniBand"),
        "no GPUDirect": (
            "network",
            "NET/IB" in paths and "NET/IB/GDRDMA" not in paths and able,
            "InfiniBand through the host's memory, without GPUDirect",
        ),
        "shared memory": (
            "GPU links",
            "SHM" in paths and bool(pairs) and min(pairs) > 0,
            "the host's memory, although NVLinks lead to every GPU",
        ),
    }
    for kind, (part, wrong, value) in troubles.items():
        if wrong:
            yield Verdict(
                part=part,
                what="NCCL uses",
                value=value,
                normal="the fastest way there is",
                verdict="low",
                advice=advice.for_kind(kind),
                kind=kind,
            )
    if paths and not any(wrong for _, wrong, _ in troubles.values()):
        said = ", ".join(f"{count} channels by {path}" for path, count in paths.items())
        yield Verdict(part="collectives", what="NCCL uses", value=said, normal="the fastest way", verdict="normal")
