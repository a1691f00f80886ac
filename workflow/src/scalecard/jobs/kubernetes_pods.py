"""Adds to each job's specification what the Kubernetes executor plugin cannot request.

A measurement never shares its node with another (it also requests all of the node's GPUs), ends at its time limit, has
shared memory for NCCL, installs nothing, and knows the digest of the image that it runs in.
"""

from contextvars import ContextVar
from functools import wraps
from typing import Any

LABELS = {"app.kubernetes.io/name": "scalecard"}
TO_PULL = 15  # minutes that a pod gets on top of its time limit: for its image, which has several GB

_minutes: ContextVar[int | None] = ContextVar("_minutes", default=None)  # time limit of the job that is submitted


def complete_all() -> None:
    """From now on, complete every job that this process creates."""
    import snakemake_executor_plugin_kubernetes as plugin  # installed for the profile only
    from kubernetes import client

    # Otherwise each pod fetches the newest storage plugin from the index; the image has the locked one.
    plugin.common_settings.auto_deploy_default_storage_provider = False
    run, create = plugin.Executor.run_job, client.BatchV1Api.create_namespaced_job

    @wraps(run)
    def remembered(executor: Any, job: Any) -> None:
        _minutes.set(dict(job.resources).get("runtime"))
        run(executor, job)

    @wraps(create)
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
