"""What the proof of the library's pipelines cannot tell apart: which schedule it is."""

import pytest
from scalecard.training.library_pipeline import SCHEDULES


@pytest.mark.parametrize(("name", "of_torch"), [("gpipe", "ScheduleGPipe"), ("1f1b", "Schedule1F1B")])
def test_the_librarys_schedules_are_what_they_are_called(name: str, of_torch: str) -> None:
    """Both compute the same and send as much."""
    assert SCHEDULES[name].__name__ == of_torch
