"""Verdicts on what the hardware says of itself (slots, links, clocks, NCCL's ways), and on errors that it reported.

Errors are what failed (a device that computes or copies wrongly or whose driver reported an error, lost ranks, a run
that ended early), and what the hardware counted before and after the load.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import median

from scalecard.analysis import formatting, limits, published_figures
from scalecard.analysis.health.verdict import Kind, Part, Place, Verdict, View, together, views
from scalecard.hardware.facts import silent_gpus
from scalecard.records.record import Reason, Record, Result, Slowdown

UNKNOWN = "nothing is known to compare it with"
LAPTOP = "Laptop GPU"  # in the driver's name of a GPU that is built into one
LEAST_FREE = 10 * 2**30  # bytes; data and checkpoints need more
CHEAP = ("GeForce", "TITAN")  # cards to which network adapters cannot write
# Of a sustained load:
FALL = 0.95  # of the first rate
FEWEST = 3
FIRST = 0.1  # of the samples, and at least FEWEST, say what the rate was at first
TOGETHER = 5  # samples, whose median is not moved by one interruption
NOTABLE = 0.05  # of the readings
# The parts of the machine that the parts of a case belong to.
PARTS = {
    "compute": Part.COMPUTE,
    "load": Part.COMPUTE,
    "memory": Part.MEMORY,
    "host link": Part.HOST_LINKS,
    "device link": Part.GPU_LINKS,
    "collective": Part.COLLECTIVES,
    "node": Part.NETWORK,
    "node pair": Part.NETWORK,
}
# What other failures than a program's errors are evidence of, and what is normal.
FAILURES = {
    Reason.DEVICE_FAULT: (Kind.DEVICE_FAULT, "no error of a GPU is normal"),
    Reason.NOT_PROVEN: (Kind.WRONG_VALUES, "only what a reference computes is normal"),
}
# Of each counter: its part of the machine, what it is evidence of, and by how much it may grow in the minutes of a run.
# Eight replays a minute are NVIDIA's limit for PCIe, and CRC errors matter from 100 a second on (DCGM,
# dcgm_gpu_hardware_limits.h); those of InfiniBand are our own.
COUNTERS = {
    "ECC corrected": (Part.MEMORY, Kind.MEMORY_ERRORS, 0),
    "ECC uncorrected": (Part.MEMORY, Kind.MEMORY_ERRORS, 0),
    "rows remapped": (Part.MEMORY, Kind.MEMORY_ERRORS, 0),
    "XID": (Part.COMPUTE, Kind.XID, 0),
    "NVLink replays": (Part.GPU_LINKS, Kind.NVLINK_ERRORS, 0),
    "NVLink CRC errors": (Part.GPU_LINKS, Kind.NVLINK_ERRORS, 100),
    "PCIe replays": (Part.HOST_LINKS, Kind.PCIE_ERRORS, 8),
    "symbol errors": (Part.NETWORK, Kind.ADAPTER_ERRORS, 10),
    "link downed": (Part.NETWORK, Kind.ADAPTER_ERRORS, 0),
    "receive errors": (Part.NETWORK, Kind.ADAPTER_ERRORS, 10),
    "send discards": (Part.NETWORK, Kind.ADAPTER_ERRORS, 100),
}


def state(result: Result) -> Iterator[Verdict]:
    """What each device, and the machine, says of itself."""
    every = views(result)
    for at in every:
        for judge in (_lost, _slots, _nvlinks, _peer_access, _host):
            yield from judge(at)
    yield from _loads(every)
    yield from _adapters(every)
    yield from _ways(result)


def _lost(at: View) -> Iterator[Verdict]:
    """A device of which nothing was measured that was measured of others, or a card that does not answer."""
    of_devices = ("compute", "memory", "host link", "load")
    seen = {record.case.get("device") for part in of_devices for record in at.result.select("time", part=part)}
    facts = at.result.environment
    num_devices = len(facts["gpus"]) or int(facts["machine"]["num_devices"])
    gone = [at.device(device) for device in range(num_devices) if seen and device not in seen]
    gone += [at.part(f"card {card} of the PCI bus") for card in silent_gpus(facts["missing"])]
    value, normal = "lost: nothing was measured of it", f"{len(seen) or 'other'} devices were measured"
    for lost in gone:
        yield Verdict(Part.COMPUTE, Kind.LOST, (lost,), verdict="errors", value=value, normal=normal)


def _slots(at: View) -> Iterator[Verdict]:
    """The width and the generation of each card's slot, as seen while something was copied."""
    gpus = at.result.environment["gpus"]
    seen = [_seen(at, device) for device in range(len(gpus))]
    slots = ((Kind.SLOT_GENERATION, "pcie_gen_max", "PCIe "), (Kind.SLOT_WIDTH, "pcie_width_max", "x"))
    for device, gpu in enumerate(gpus):
        spec = published_figures.gpu_spec(gpu["name"])
        if spec and spec.host_link:
            continue  # its way to the host is another
        alike = [own for own, its in zip(seen, gpus, strict=True) if its["name"] == gpu["name"]]
        for (kind, most, unit), found, of_alike in zip(slots, seen[device], zip(*alike, strict=True), strict=True):
            best = max(gpu[most] or 0, _usual(of_alike))
            lanes = (spec and spec.pcie_lanes) or 0
            # The driver's maximum is that of card and slot. Half of a card's lanes is common for two; less is a fault.
            best = lanes if kind is Kind.SLOT_WIDTH and 2 * found < lanes else best
            value = f"{unit}{found}" + (f" instead of {unit}{best}" if found < best else "")
            normal = f"{unit}{best} is what {'the card' if best > (gpu[most] or 0) else 'card and slot'} can do"
            if found:
                word, place = _word(found >= best), (at.device(device),)
                yield Verdict(Part.HOST_LINKS, kind, place, verdict=word, value=value, normal=normal, measured=kind)


def _seen(at: View, device: int) -> tuple[int, int]:
    """(generation, width) at their highest under load, 0 if it is not known: an idle card lowers its generation."""
    records = at.result.select("time", part="host link", device=device)
    generations, widths = zip((0, 0), *(limits.pcie_seen(record, device) for record in records), strict=True)
    return max(generations), max(widths) or at.result.environment["gpus"][device]["pcie_width"] or 0


def _usual(values: Sequence[int]) -> int:
    """What most cards of a kind have, so that one in a slower slot stands out even if its driver knows no better."""
    ((value, count),) = Counter(values).most_common(1)
    return value if count > len(values) / 2 else 0


def _word(fine: bool) -> str:
    return "normal" if fine else "low"


def _nvlinks(at: View) -> Iterator[Verdict]:
    """As many as the others have; cards without a bridge have none, which is no fault."""
    gpus = at.result.environment["gpus"]
    for device, gpu in enumerate(gpus):
        if up := gpu["nvlinks"]:
            usual = int(median(its["nvlinks"] for its in gpus if its["name"] == gpu["name"] and its["nvlinks"]))
            yield Verdict(
                Part.GPU_LINKS,
                Kind.NVLINKS_DOWN,
                (at.device(device),),
                verdict=_word(up >= usual),
                value=f"{up} up",
                normal=f"{usual} are up on the others",
                measured="NVLinks",
            )


def _peer_access(at: View) -> Iterator[Verdict]:
    """A GPU must be able to write to another one's memory where NVLinks lead there."""
    copies = at.result.select("time", part="device link", peer=False)
    for a, b in sorted({tuple(sorted((r.integer("source"), r.integer("target")))) for r in copies}):
        if limits.nvlinks(at.result, a, b):
            yield Verdict(
                Part.GPU_LINKS,
                Kind.PEER_ACCESS,
                (at.device(a), at.device(b)),
                verdict="low",
                value="off, though NVLinks lead there",
                normal="peers write to each other's memory",
                measured="peer access",
                who=f"{at.device(a)} and {b}",
            )


def _host(at: View) -> Iterator[Verdict]:
    """Room where images are kept, and the CPU's governor: which of them are slow depends on the driver."""
    for record in at.result.select("free_space"):
        word, place = _word(record.median >= LEAST_FREE), (at.part("free space in data_dir"),)
        free, least = (formatting.count_bytes(size) for size in (record.median, LEAST_FREE))
        yield Verdict(Part.HOST, Kind.FREE_SPACE, place, verdict=word, value=free, normal=f"at least {least}")
    facts = at.result.environment
    governor = f", governor {facts['cpu_governor']}" if facts["cpu_governor"] else ""
    cores = f"{facts['machine']['cores']}{governor}"
    yield Verdict(Part.HOST, Kind.OTHER, (at.part("cores"),), verdict="not judged", value=cores, normal=UNKNOWN)


@dataclass(frozen=True)
class Course:
    """The rate over a load: its last share of the first, and the seconds until it had fallen by 5 %, or None."""

    seconds: float
    at_the_end: float
    fell_after: float | None


def course(record: Record) -> Course:
    """How the rate went, from the seconds per call in the order in which they were taken."""
    calls = record.telemetry[0].iterations if record.telemetry else 1
    samples = record.samples[0]
    ends = [calls * seconds for seconds in accumulate(samples)]
    first = median(samples[: max(FEWEST, int(FIRST * len(samples)))])
    windows = [median(samples[start : start + TOGETHER]) for start in range(max(1, len(samples) - TOGETHER + 1))]
    share = first / windows[-1]
    slow = [start for start, seconds in enumerate(windows) if first / seconds <= FALL]
    return Course(ends[-1], share, ends[slow[0]] if slow and share <= FALL else None)


def held_back(record: Record, device: int, *, in_laptop: bool = False) -> dict[str, float]:
    """What slowed the device's clocks down, each with the share of readings that showed it; a power cap is normal."""
    # Fans of laptops are not made for a sustained load, so the driver lowers their clocks.
    abnormal = {*Slowdown} - ({Slowdown.THERMAL_BY_SOFTWARE} if in_laptop else set())
    found: dict[str, float] = {}
    for reason, share in (each for state in limits.gpu_states(record, device) for each in state.reasons.items()):
        if reason in abnormal and share >= NOTABLE:
            found[reason] = max(share, found.get(reason, 0.0))
    return found


def _loads(every: Sequence[View]) -> Iterator[Verdict]:
    """Whether a sustained load slowed a device down. A power cap is normal, and a laptop's heat."""
    known = [(at, record, course(record)) for at in every for record in at.result.select("time", part="load")]
    usual = min(1.0, median(went.at_the_end for _, _, went in known)) if known else 1.0  # none must become faster
    for at, record, went in known:
        device, gpus = record.integer("device"), at.result.environment["gpus"]
        in_laptop = device < len(gpus) and LAPTOP in gpus[device]["name"]
        reasons = held_back(record, device, in_laptop=in_laptop)
        slowed = bool(reasons) or went.at_the_end < FALL * usual
        normal = f"the usual rate at its end is {100 * usual:.0f} % of the first, and nothing but a power cap"
        normal += " and the driver's limit of heat" if in_laptop else ""
        yield Verdict(
            Part.COMPUTE,
            Kind.SLOWED_DOWN,
            (at.device(device),),
            verdict="slowed down" if slowed else "normal",
            value=", ".join(_course_text(went, record, device, reasons)),
            normal=normal,
            measured="sustained load",
        )


def _course_text(went: Course, record: Record, device: int, reasons: dict[str, float]) -> Iterator[str]:
    if went.fell_after is None:
        yield f"no fall by 5 % in {went.seconds:.3g} s"
    else:
        yield f"fell to {100 * went.at_the_end:.0f} %; slowing began after {went.fell_after:.3g} s"
    degrees = [gpu.temperature_c.high for gpu in limits.gpu_states(record, device) if gpu.temperature_c]
    if degrees:
        yield f"{max(degrees):.0f} °C"
    yield from (f"{reason} in {100 * share:.0f} % of the readings" for reason, share in reasons.items())


def _adapters(every: Sequence[View]) -> Iterator[Verdict]:
    """The line rate of each InfiniBand port beside that of the same port on the other nodes: ports may differ."""
    known = [(at, r.text("adapter"), r.median) for at in every for r in at.result.select("rate", part="adapter")]
    for at, port, rate in known:
        usual = _usual([int(theirs) for _, other, theirs in known if other == port])
        compared = len(every) > 1 and usual > 0
        yield Verdict(
            Part.NETWORK,
            Kind.ADAPTER_RATE,
            (at.part(port),),
            verdict=_word(rate >= usual) if compared else "not judged",
            value=f"{rate * 8 / 1e9:.0f} Gbit/s",
            normal=f"{usual * 8 / 1e9:.0f} Gbit/s on most nodes" if compared else UNKNOWN,
            measured="line rate",
        )


def _ways(result: Result) -> Iterator[Verdict]:
    """What NCCL uses between nodes and within one, by its own word."""
    paths, gpus = result.environment["nccl_paths"], result.environment["gpus"]
    adapters = any("adapter" in record.case for record in result.records)
    pairs = [count for row in result.environment["nvlink_pairs"] for count in row if count is not None]
    able = bool(gpus) and not any(word in gpus[0]["name"] for word in CHEAP)
    found = list[tuple[Kind, Part, str]]()
    if "NET/Socket" in paths and adapters:
        found.append((Kind.SOCKET, Part.NETWORK, "TCP sockets, although there is InfiniBand"))
    if "NET/IB" in paths and "NET/IB/GDRDMA" not in paths and able:
        found.append((Kind.NO_GPUDIRECT, Part.NETWORK, "InfiniBand through the host's memory, without GPUDirect"))
    if "SHM" in paths and pairs and min(pairs) > 0:
        found.append((Kind.SHARED_MEMORY, Part.GPU_LINKS, "the host's memory, although NVLinks lead to every GPU"))
    uses, fastest = "NCCL uses", "the fastest way there is"
    for kind, part, way in found:
        yield Verdict(part, kind, (), verdict="low", value=way, normal=fastest, measured=uses)
    if paths and not found:
        ways = ", ".join(f"{count} channels by {path}" for path, count in paths.items())
        word, normal = "normal", "the fastest way"
        yield Verdict(Part.COLLECTIVES, Kind.OTHER, (), verdict=word, value=ways, normal=normal, measured=uses)


def faults(result: Result) -> Iterator[Verdict]:
    """One for everything that failed, or had no time; what runs out of memory says nothing of a machine's health."""
    late, normal = [r for r in result.records if r.reason is Reason.NO_TIME], "every part is to be measured"
    yield from (_not_ok(record, Kind.NOT_MEASURED, verdict="not measured", normal=normal) for record in late)
    every = [*views(result), View(together(result))]
    failed = [(at, record) for at in every for record in at.result.records if record.is_fault]
    for at, record in failed:
        other = (Kind.FAILED, "nothing fails on a healthy machine")
        kind, normal = FAILURES.get(record.reason or Reason.ERROR, other)
        ends = [axis for axis in ("device", "source", "target") if record.case.get(axis) is not None]
        place = tuple(at.device(record.integer(axis)) for axis in ends)
        yield _not_ok(record, kind, verdict="errors", normal=normal, place=place)


def _not_ok(record: Record, kind: Kind, *, verdict: str, normal: str, place: tuple[Place, ...] = ()) -> Verdict:
    named = record.text("part", "health")
    part = PARTS.get(named, Part.HOST)
    return Verdict(part, kind, place, verdict=verdict, value=record.note, normal=normal, measured=named)


def counters(result: Result) -> Iterator[Verdict]:
    """One for every counter that was read."""
    read = [(at, record) for at in views(result) for record in at.result.select("errors")]
    for at, record in read:
        counter, adapter = record.text("counter"), record.text("adapter", "")
        part, kind, allowed = COUNTERS.get(counter, (Part.HOST, Kind.OTHER, 0))
        before, after = map(int, record.samples[0])
        grown = after - before if after >= before else after  # one that was reset counts from 0
        known = counter in COUNTERS
        wrong = known and grown > allowed
        place = at.part(adapter) if adapter else at.device(record.integer("device"))
        yield Verdict(
            part,
            kind,
            (place,),
            verdict="errors" if wrong else "normal" if known else "not judged",
            value=f"{grown} more during the load" if grown else "none during the load",
            normal=f"up to {allowed} is normal" if allowed else "none is normal",
            measured=counter,
        )
