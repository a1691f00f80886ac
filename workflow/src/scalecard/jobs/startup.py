"""What is done as a workflow starts: room on the disk, leftovers of killed runs, Snakemake's messages shortened.

A killed Snakemake leaves its lock files, and the next one stops until `snakemake --unlock`. So every workflow also
holds a lock that the kernel releases when it dies, on a file of its own, named after the kernel it runs on:

    .snakemake/scalecard-running/BOOT.RANDOM    the host's name, and Snakemake's temporary folder

The folder's lock is stale if every file there is one of this host's and nobody holds it. A file of another host proves
nothing, since not every shared file system passes locks on: what it may still hold is left alone.

Jobs that a killed workflow left in Slurm's queue: they keep running, and the next start waits for them.

Slurm's plugin, unlike cluster-generic, cannot adopt a job of an earlier run: it would be submitted again even while it
is running. Snakemake marks the output of each job that it submits with the scheduler's job ID; but once the job runs,
its own Snakemake writes the mark anew, without the ID. So the queue is asked as well: the plugin names each job after
its run, by a UUID, and starts it in the project's folder.

Kubernetes' plugin cannot request all that a measurement needs, so that is added to each job's specification: it never
shares its node with another (it also requests all of the node's GPUs), ends at its time limit, has shared memory for
NCCL, installs nothing, and knows the digest of the image that it runs in.
"""

import atexit
import contextlib
import fcntl
import functools
import itertools
import json
import logging
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Collection, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from snakemake_interface_logger_plugins.common import LogEvent

from scalecard.hardware import isolation
from scalecard.jobs.config_file import InvalidConfig
from scalecard.records.atomic import FULL, remove_unfinished

STATE = Path(".snakemake")
RESULTS = Path("results")
BOOT = Path("/proc/sys/kernel/random/boot_id")
_held: list[int] = []  # open until this process ends
ONLY_LOOKS = re.compile(
    r"-[a-z]*n[a-z]*|--(dry|lint|report|summary|detailed-summary|dag|rulegraph|filegraph|d3dag|list|touch|unlock|archive"
    r"|cleanup|containerize).*"
)
OF_A_RUN = re.compile(r".*[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
PAUSE = 10  # seconds between polls of the queue
NEEDED = 4 * 2**20  # bytes; results are smaller, and so are Snakemake's own temporary files
REPEATED = re.compile(
    r"Select jobs to execute\.\.\.|Execute \d+ jobs\.\.\.|Singularity containers: ignored|Using shell: .*"
    r"|Assuming unrestricted shared filesystem usage\."
)
LABELS = {"app.kubernetes.io/name": "scalecard"}
TO_PULL = 15  # minutes that a pod gets on top of its time limit: for its image, which has several GB
_minutes: ContextVar[int | None] = ContextVar("_minutes", default=None)  # time limit of the job that is submitted


def wait_for_slurm_jobs(arguments: Sequence[str], *, state: Path = STATE) -> None:
    """Wait until no job that is marked, or was submitted from this folder by another run, is left in Slurm's queue.

    Returns at once if this Snakemake command line runs no job, or if another workflow is running: the marks are then
    its own.
    """
    if only_looks(arguments) or any((state / "locks").glob("*")):
        return
    jobs = marked_jobs(state)
    while alive := sorted(left_over(_queue(), jobs, folder=state.parent.resolve())):
        print(f"waiting for Slurm jobs {', '.join(alive)}, left by a killed run; scancel ends them", flush=True)
        time.sleep(PAUSE)


def only_looks(arguments: Sequence[str]) -> bool:
    """Whether this Snakemake command line runs no job."""
    return any(ONLY_LOOKS.fullmatch(argument) for argument in arguments)


def marked_jobs(state: Path) -> set[str]:
    """The scheduler's IDs of the jobs whose outputs are marked."""
    marks = [json.loads(path.read_text()) for path in (state / "incomplete").rglob("*") if path.is_file()]
    return {mark["external_jobid"] for mark in marks if mark.get("external_jobid")}


def left_over(queue: str, marked: Collection[str], *, folder: Path) -> set[str]:
    """Of a queue, with a job's ID, name and folder in each line, the IDs of what is marked or of another run's jobs."""
    jobs = [line.split("|", 2) for line in queue.splitlines()]
    here = os.environ.get("SLURM_JOB_ID")  # where the workflow itself is a job
    return {
        number
        for number, name, where in jobs
        if number != here and (number in marked or (OF_A_RUN.fullmatch(name) and Path(where).resolve() == folder))
    }


def _queue() -> str:
    command = ["squeue", "--noheader", "--me", "--format=%A|%j|%Z"]
    while (done := subprocess.run(command, capture_output=True, text=True)).returncode:
        print(f"{' '.join(command)}: {done.stderr.strip()}; asking again", flush=True)
        time.sleep(PAUSE)
    return done.stdout


def complete_kubernetes_jobs() -> None:
    """From now on, complete every job that this process creates."""
    import snakemake_executor_plugin_kubernetes as plugin  # installed for the profile only
    from kubernetes import client

    # Otherwise each pod fetches the newest storage plugin from the index; the image has the locked one.
    plugin.common_settings.auto_deploy_default_storage_provider = False
    run, create = plugin.Executor.run_job, client.BatchV1Api.create_namespaced_job

    @functools.wraps(run)
    def remembered(executor: Any, job: Any) -> None:
        _minutes.set(dict(job.resources).get("runtime"))
        run(executor, job)

    @functools.wraps(create)
    def completed(api: Any, namespace: str, body: Any, **options: Any) -> Any:
        _complete(client, body, minutes=_minutes.get())
        return create(api, namespace, body, **options)

    plugin.Executor.run_job, client.BatchV1Api.create_namespaced_job = remembered, completed


def _complete(client: Any, job: Any, *, minutes: int | None) -> None:
    """Change a V1Job in place; `client` is kubernetes.client."""
    pod = job.spec.template.spec
    if minutes:  # of the pod and not of the job, whose time begins before a node is free
        pod.active_deadline_seconds = 60 * (minutes + TO_PULL)
    # The plugin tolerates only a taint with the value "present", and clusters choose their own.
    pod.tolerations = [client.V1Toleration(key=taint.key, operator="Exists") for taint in pod.tolerations or []]
    job.spec.template.metadata = client.V1ObjectMeta(labels=LABELS)
    others = client.V1PodAffinityTerm(
        label_selector=client.V1LabelSelector(match_labels=LABELS), topology_key="kubernetes.io/hostname"
    )
    apart = client.V1PodAntiAffinity(required_during_scheduling_ignored_during_execution=[others])
    pod.affinity = client.V1Affinity(pod_anti_affinity=apart)
    shared = client.V1EmptyDirVolumeSource(medium="Memory")
    pod.volumes.append(client.V1Volume(name="shared-memory", empty_dir=shared))
    (container,) = pod.containers
    if container.resources.limits:
        container.resources.limits.pop("cpu", None)  # set for one thread, but a measurement uses the whole node
    container.volume_mounts.append(client.V1VolumeMount(name="shared-memory", mount_path="/dev/shm"))
    digest = container.image.partition("@")[2]
    facts = {"SCALECARD_ENGINE": "kubernetes", "PIP_NO_INDEX": "1"}
    facts |= {"SCALECARD_IMAGE_DIGEST": digest} if digest else {}
    container.env += [client.V1EnvVar(name=name, value=value) for name, value in facts.items()]


def take_over_lock(arguments: Sequence[str], *, temporary: Path, state: Path = STATE) -> None:
    """Remove the folder's lock if it is stale, with a line that says so, and enter this workflow as running.

    `temporary` is Snakemake's own folder in the temporary one. Those of dead workflows are removed.
    With `--unlock` only the entries of dead workflows go, wherever they ran: the user says that none is alive.
    """
    unlocking = "--unlock" in arguments
    if only_looks(arguments) and not unlocking:
        return
    running = state / "scalecard-running"
    running.mkdir(parents=True, exist_ok=True)
    with (running / "turn").open("w") as turn:  # two workflows that start together look one after the other
        with contextlib.suppress(OSError):
            fcntl.flock(turn, fcntl.LOCK_EX)
        alive, dead, elsewhere = _told_apart(running)
        for folder in (Path(path.read_text().partition("\n")[2] or ".") for path in dead):
            if folder.name.startswith("snakemake"):  # which Snakemake gives it
                shutil.rmtree(folder, ignore_errors=True)
        for path in dead + elsewhere * unlocking:
            path.unlink(missing_ok=True)
        if unlocking:
            return
        if any((state / "locks").glob("*.lock")):
            _judge(alive, dead, elsewhere, state / "locks")
        _enter(running, temporary)


def _judge(alive: list[Path], dead: list[Path], elsewhere: list[Path], locks: Path) -> None:
    if dead and not alive and not elsewhere:
        shutil.rmtree(locks)
        print("The workflow that had locked this folder is dead: its lock is removed.", flush=True)
    elif elsewhere and not alive:
        print(
            f"A workflow on {_host(elsewhere[0])} has locked this folder. If it is dead, start it there again, or"
            " run `snakemake --unlock`.",
            flush=True,
        )


def _told_apart(running: Path) -> tuple[list[Path], list[Path], list[Path]]:
    """The workflows that are alive, those that died on this host, and those of other hosts, which may be either."""
    alive, dead, elsewhere = list[Path](), list[Path](), list[Path]()
    for path in running.glob("*.*"):
        if not _is_free(path):
            alive.append(path)
        elif path.name.startswith(f"{_boot()}.") or _host(path) == platform.node():
            dead.append(path)
        else:
            elsewhere.append(path)
    return alive, dead, elsewhere


def _host(entry: Path) -> str:
    return entry.read_text().partition("\n")[0]


def _is_free(path: Path) -> bool:
    """Whether nobody on this kernel holds it; where files cannot be locked it counts as held."""
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _enter(running: Path, temporary: Path) -> None:
    """Hold a file in the name of this process until it ends."""
    file, name = tempfile.mkstemp(dir=running, prefix=f"{_boot()}.")
    _held.append(file)
    atexit.register(Path(name).unlink, missing_ok=True)
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(file, fcntl.LOCK_EX)
    os.write(file, f"{platform.node()}\n{temporary}".encode())


def _boot() -> str:
    """Names the running kernel, which all containers of a host share."""
    return BOOT.read_text().strip()[:13]


def remove_leftovers() -> None:
    """Remove what killed runs have left, and name the folders; what a living process uses stays."""
    remove_unfinished(itertools.chain(RESULTS.rglob(".*"), STATE.glob(".scalecard-*")))
    for folder in isolation.remove_dead_folders():
        print(f"removed {folder}, left by a killed measurement", flush=True)


def check_disk_space(arguments: Sequence[str], results: Path = RESULTS) -> None:
    """Write to the temporary folder and to that of the results; InvalidConfig names the one that cannot be written.

    Returns at once if this Snakemake command line runs no job.
    """
    if only_looks(arguments):
        return
    temporary = Path(os.environ.get("TMPDIR") or tempfile.gettempdir())
    for folder, what in ((temporary, "TMPDIR, the temporary folder"), (results, "the folder of the results")):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(bytes(NEEDED))
                file.flush()
        except OSError as error:
            amounts = f" ({_amounts(folder)})" if error.errno in FULL else ""
            raise InvalidConfig(f"{folder}: {what}: {error.strerror}{amounts}") from error


def _amounts(folder: Path) -> str:
    needed = f"{NEEDED / 2**20:.0f} MiB are needed"
    try:
        return f"{needed}, {shutil.disk_usage(folder).free / 2**20:.1f} MiB are free"
    except OSError:
        return needed


class Terminal(logging.Filter):
    """A filter for Snakemake's logger. `failed` lists the logs of the jobs that failed."""

    def __init__(self) -> None:
        super().__init__()
        self.failed: list[str] = []

    def filter(self, record: logging.LogRecord) -> bool:
        """Drop messages that repeat others, and a failed job's dozens of inputs, which hide its log."""
        if getattr(record, "event", None) == LogEvent.JOB_ERROR:
            facts = record.__dict__
            facts["input"] = []
            self.failed += facts["log"] or []
        return not REPEATED.fullmatch(str(record.msg))
