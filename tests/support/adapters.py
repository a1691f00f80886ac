"""InfiniBand ports on a pretended /sys."""

from pathlib import Path


def add_port(folder: Path, rate: str, **counters: str) -> Path:
    port = folder / "mlx5_0" / "ports" / "1"
    (port / "counters").mkdir(parents=True)
    (port / "rate").write_text(rate)
    for name, value in counters.items():
        (port / "counters" / name).write_text(value)
    return port
