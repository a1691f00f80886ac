"""Turns the `container` block of config.yaml into a marker: an image that works, or the host's environment."""

from collections.abc import Mapping
from typing import Any

from scalecard import __version__
from scalecard.jobs.containers import build, engines, launch
from scalecard.jobs.containers.marker import Marker


def choose(wanted: Mapping[str, Any], *, shared: bool) -> Marker:
    """Choose an engine, build or find the image, and check that it sees the GPUs.

    `shared`: the image is for other nodes. If the base image cannot be fetched or the GPUs are not passed on, engine
    'auto' falls back to the host's environment, and an engine chosen by name is an error.
    """
    engine, why = engines.choose(wanted["engine"], shared=shared)
    print(f"experiments run in {'the host environment' if engine == 'none' else engine}: {why}", flush=True)
    try:
        made = build.prepare(
            engine,
            why,
            base_image=wanted["base_image"],
            build_args=wanted["build_args"],
            image=wanted["image"],
            version=__version__,
        )
        _refuse_without_gpus(engine, made)
    except (build.NoBaseImage, launch.NoGpus) as error:
        if wanted["engine"] != "auto":
            raise
        print(f"warning: {error}\nThe experiments run in the host's environment instead.", flush=True)
        reason = str(error).splitlines()[0].removesuffix(" Its last lines:")
        return Marker(engine="none", why=f"{engine} answers, but: {reason}")
    return made


def _refuse_without_gpus(engine: str, made: Marker) -> None:
    """Raise NoGpus if the host has GPUs that the image does not see."""
    reason = launch.why_no_gpus(made) if engine != "none" and launch.has_gpus() else ""
    if reason:
        raise launch.NoGpus(f"container.engine = {engine}: it does not pass the GPUs on ({reason}). {launch.ADVICE}")
