"""A line of speed-ups as small as a word, beside its ideal."""

from collections.abc import Sequence

WIDTH, HEIGHT, PAD = 96, 30, 3  # in units of the viewBox


def sparkline(points: Sequence[tuple[float, float]]) -> str:
    """An inline SVG of (devices, speed-up) pairs, from zero to the most devices; dotted is one times each device."""
    most = max(devices for devices, _ in points)

    def place(devices: float, speed_up: float) -> tuple[str, str]:
        x = PAD + (WIDTH - 2 * PAD) * devices / most
        return f"{x:.1f}", f"{HEIGHT - PAD - (HEIGHT - 2 * PAD) * min(1.0, speed_up / most):.1f}"

    ideal, line = (" ".join(",".join(place(*point)) for point in ends) for ends in (((0, 0), (most, most)), points))
    end_x, end_y = place(*points[-1])
    return (
        f'<svg class="spark" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true">'
        f'<polyline class="ideal" points="{ideal}"/><polyline points="{line}"/>'
        f'<circle cx="{end_x}" cy="{end_y}" r="2.2"/></svg>'
    )
