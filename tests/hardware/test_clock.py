"""When a measurement began and ended, whatever is done to the system's clock meanwhile."""

from datetime import datetime, timedelta

import pytest
from scalecard.hardware import host


@pytest.mark.parametrize(("shift", "said"), [(-3600, "set back by 3600 s"), (7200, "set ahead by 7200 s"), (1, "")])
def test_a_clock_that_is_set_changes_no_duration_and_is_told(
    monkeypatch: pytest.MonkeyPatch, shift: int, said: str
) -> None:
    watch = host.Stopwatch()
    began, ticks = host._now(), host._seconds()
    monkeypatch.setattr(host, "_seconds", lambda: ticks + 60)
    monkeypatch.setattr(host, "_now", lambda: began + timedelta(seconds=60 + shift))
    watch.stop()
    span = datetime.fromisoformat(watch.finished) - datetime.fromisoformat(watch.started)
    assert 60 <= span.total_seconds() < 62
    assert len(watch.remarks) == bool(said)
    assert said in "".join(watch.remarks)
