"""What is said about one part of a machine, and the kinds of trouble that it can be evidence of."""

from dataclasses import dataclass

PARTS = ("compute", "memory", "host links", "GPU links", "collectives", "network", "host")
WORDS = ("errors", "slowed down", "odd one out", "low", "not judged", "normal")  # the worst first
MOST_SEEN = 3  # of what a fault also shows in are told
FINE = ("normal", "not judged")
SYMBOLS = {"normal": "✓", "not judged": "–", "odd one out": "≠", "low": "▼", "slowed down": "↓", "errors": "✗"}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One part of the machine, judged.

    `part` is one of PARTS and `verdict` one of WORDS; `share` is that of the hardware's limit, where one is known.
    `kind` is the trouble that it would be evidence of, and `place` the devices or nodes that it is about; an empty
    place is all of them. `seen_in` says of an alert where else the same trouble shows; `low`, whether any of it is
    below what is normal for the hardware's limit, also where the word is another.
    """

    part: str
    what: str
    value: str
    normal: str
    verdict: str
    advice: str = ""
    share: float | None = None
    kind: str = ""
    place: tuple[str, ...] = ()
    seen_in: tuple[str, ...] = ()
    low: bool = False

    @property
    def fine(self) -> bool:
        """Whether nothing is wrong, as far as could be judged."""
        return self.verdict in FINE

    @property
    def text(self) -> str:
        """The verdict as one clause, without the advice."""
        return f"{self.what}: {self.verdict}, {self.value} ({self.normal}){self.elsewhere}"

    @property
    def elsewhere(self) -> str:
        """Where else it shows, as the rest of a sentence; '' if nowhere."""
        where = list(dict.fromkeys(self.seen_in))
        shown = "; ".join(where[:MOST_SEEN])
        more = f"; and {len(where) - MOST_SEEN} more" if len(where) > MOST_SEEN else ""
        return f". It also shows in {shown}{more}" if shown else ""
