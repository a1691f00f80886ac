"""Apptainer's command line and environment. It shares the host's limits, process numbers and user by default.

Variables travel as APPTAINERENV_*, because --env splits its value at commas. The caller's own variables of that kind,
and those that would mount or allow more, are left out.
"""

import os

from scalecard.hardware.vendors.nvidia import nccl
from scalecard.jobs.containers.inside import Inside, Mount

# The options of `apptainer exec` that add to what is inside, each also read from APPTAINER_* and SINGULARITY_*.
ADDING = {
    f"{prefix}_{option}"
    for prefix in ("APPTAINER", "SINGULARITY")
    for option in (
        *("BIND", "BINDPATH", "MOUNT", "OVERLAY", "OVERLAYIMAGE", "SCRATCH", "SCRATCHDIR", "FUSESPEC", "HOME"),
        *("ENV", "ENV_FILE", "WRITABLE", "WRITABLE_TMPFS", "ADD_CAPS", "KEEP_PRIVS", "ALLOW_SETUID"),
    )
}


def command(inside: Inside) -> list[str]:
    """Everything before the image's path."""
    if inside.online and nccl.VERBS.exists():
        inside = inside._replace(mounts=[*inside.mounts, Mount(nccl.VERBS, writable=True)])
    return [
        *("apptainer", "exec", "--cleanenv", "--contain", "--no-privs"),
        *("--no-home", "--home", "/tmp"),  # a home like that of the other engines, and nothing of the caller's
        *([] if inside.online else ["--net", "--network", "none"]),
        *(["--nv"] if inside.gpus else []),
        *inside.each_mount(),
        *("--pwd", str(inside.project)),
    ]


def environment(inside: Inside) -> dict[str, str]:
    """The environment to start Apptainer in."""
    other = ("APPTAINERENV_", "SINGULARITYENV_")
    kept = {key: value for key, value in os.environ.items() if key not in ADDING and not key.startswith(other)}
    return kept | {f"APPTAINERENV_{key}": value for key, value in inside.variables.items()}
