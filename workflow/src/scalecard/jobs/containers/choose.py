"""Turns the `container` block of config.yaml into a marker: an image that works, or the host's environment."""

from collections.abc import Mapping
from typing import Any

from scalecard import __version__
from scalecard.jobs.containers import build, engines, trial
from scalecard.jobs.containers.marker import Marker


def choose(wanted: Mapping[str, Any], *, shared: bool) -> Marker:
    """Choose an engine, build or find the image, and try it.

    `shared`: the image is for other nodes, so it is not tried on this one. If the base image cannot be fetched, no
    container starts or the GPUs are not passed on, engine 'auto' falls back to the host's environment, and an engine
    chosen by name is an error.
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
            further=wanted["packages"],
            version=__version__,
        )
        if not shared:
            trial.refuse_unusable(made)
    except (build.NoBaseImage, trial.Unusable) as error:
        if wanted["engine"] != "auto":
            raise
        print(f"warning: {error}\nThe experiments run in the host's environment instead.", flush=True)
        reason = str(error).splitlines()[0].removesuffix(" Its last lines:")
        return Marker(engine="none", why=f"{engine} answers, but: {reason}")
    return made
