"""How the numbers of a table came about, and where: in one sentence each."""

from collections.abc import Sequence

from scalecard.hardware.machine import from_facts
from scalecard.records.record import Result

DIGITS = 12  # of the container's digest; the result has all of them
METHOD = (
    "A step is the median of its samples, with the 95 % interval of that median; speed-up is the rate over that of one"
    " device alone, and efficiency the speed-up per device; with strong scaling all devices share the batch of one,"
    " with weak scaling each has as many samples; every case was proven to train what one device trains before it was"
    " timed."
)
EMULATED = " CPU workers and CPU ranks stood in for devices: the numbers say nothing about GPUs."


def provenance(results: Sequence[Result]) -> str:
    """Machine, driver, software, image, code and day: 'Measured by ScaleCard on 8 x NVIDIA H100 ...'."""
    environment = results[0].environment
    image = environment["container"]
    facts = [
        from_facts(environment["machine"]).describe(),
        f"PyTorch {environment['torch']}",
        f"container {shortened(image)}" if image else "no container",
        f"commit {', '.join(commits(results))}",
    ]
    text = f"Measured by ScaleCard on {'; '.join(facts)}; {days(results)}."
    return text + (EMULATED if any(result.emulated for result in results) else "")


def commits(results: Sequence[Result]) -> list[str]:
    """The code that measured, without repetition; '+changes' if files differed from the commit."""
    found = {(str(r.environment["commit"]), bool(r.environment["dirty"])) for r in results}
    return sorted(commit[:12] + ("+changes" if dirty else "") for commit, dirty in found)


def shortened(image: str) -> str:
    """A container's digest, with as many digits as tell it from others."""
    kind, colon, digest = image.rpartition(":")
    return f"{kind}{colon}{digest[:DIGITS]}"


def days(results: Sequence[Result]) -> str:
    """When it was measured, in UTC: '2026-01-01', or '2026-01-01 to 2026-01-02'."""
    first, last = min(result.started for result in results)[:10], max(result.finished for result in results)[:10]
    return first if first == last else f"{first} to {last}"
