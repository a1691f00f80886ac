"""Adds to each job's specification what the Kubernetes executor plugin cannot request.

A measurement never shares its node with another (it also requests all of the node's GPUs), has shared memory for NCCL,
and knows the digest of the image that it runs in.
"""

from functools import wraps
from typing import Any

LABELS = {"app.kubernetes.io/name": "scalecard"}


def complete_all() -> None:
    """From now on, complete every job that this process creates."""
    from kubernetes import client  # installed for the profile only

    create = client.BatchV1Api.create_namespaced_job

    @wraps(create)
    def completed(api: Any, namespace: str, body: Any, **options: Any) -> Any:
        complete(client, body)
        return create(api, namespace, body, **options)

    client.BatchV1Api.create_namespaced_job = completed


def complete(client: Any, job: Any) -> None:
    """Change a V1Job in place; `client` is kubernetes.client."""
    pod = job.spec.template.spec
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
    facts = {"SCALECARD_ENGINE": "kubernetes", **({"SCALECARD_IMAGE_DIGEST": digest} if digest else {})}
    container.env += [client.V1EnvVar(name=name, value=value) for name, value in facts.items()]
