"""Chooses the engine and turns docker/ into its image: built, converted to a .sif for Apptainer, or a given one.

A base image's own PyTorch stays, such as one for an older driver. An image may get further packages of the user's on
top: container.packages of config.yaml names their lock file.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scalecard import __version__
from scalecard.hardware.environment import git
from scalecard.hardware.facts import PROJECT, Missing, locked_version
from scalecard.hardware.vendors.nvidia import PACKAGES as PACKAGES_OF_CUDA
from scalecard.jobs.containers import launch
from scalecard.jobs.containers.launch import Marker

CONTEXT = PROJECT / "docker"
LOCK = CONTEXT / "requirements.lock"
PACKAGES = {suffix: CONTEXT / f"packages.{suffix}" for suffix in ("Dockerfile", "def", "sh")}
HOW = "`uv pip compile --generate-hashes --constraint docker/requirements.lock` writes such a file"
CREDENTIALS = re.compile(r"://[^/\s\"']*@")
SIF = CONTEXT / "scalecard.sif"
DEFINITION = CONTEXT / "scalecard.def"
COPIED = ("distribution.sh", "install.sh", "without_torch.awk", "requirements.lock")  # by the definition
EPOCH = "1767225600"  # as in install.sh: the same sources give the same image
TAIL = 20  # lines of a failed build that are shown again
OLDEST_TORCH, OLDEST_PYTHON = (2, 11), (3, 11)
# Prints which PyTorch a base image has, and for which CUDA; nothing if it has none. Packages are its arguments.
ASK_FOR_TORCH = """
import json, runpy, sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = version(name)
    except PackageNotFoundError:
        pass
if "torch" in found:
    (folder,) = find_spec("torch").submodule_search_locations
    built = runpy.run_path(f"{folder}/version.py")
    print(json.dumps({**found, "cuda": built["cuda"], "python": sys.version_info[:2]}))
"""
# Words in the output of a build that failed, and what to do.
ADVICE = {
    "do not match the hashes|hashes are required": (
        "the lock does not match what the package index serves: run `make lock`"
    ),
    "no space left": (
        "the disk is full: the image has 7 GB, building it takes up to 27 GB, and packing it into a .sif 31 GB"
    ),
    "name resolution|could not resolve|connection refused|timeout|no such host|network|dial tcp": (
        "the base image or the packages cannot be fetched: set container.base_image to one that this machine has or"
        " can reach, or container: {engine: none} to run in the host's environment"
    ),
}
ADVICE_ON_PACKAGES = {
    "conflicting dependencies": (
        "container.packages wants another version than docker/requirements.lock, which has what is measured with; "
        + HOW
    ),
    "do not match the hashes|hashes are required|must have their versions pinned": (
        f"container.packages must name every package with its version and the hashes of the index; {HOW}"
    ),
    **ADVICE,
}


class BuildFailed(ValueError):
    """The image could not be built; the message gives the last lines of the log and what to do."""


class NoBaseImage(BuildFailed):
    """The engine answers, but neither has the base image nor can fetch it. Nothing was built."""


def package_problems(container: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the file, one line each."""
    file = container["packages"]
    if file is not None and (said := _why_unusable(file, container["image"])):
        yield f"container.packages = {file}: {said}"


def _why_unusable(file: str, image: str | None) -> str:
    if image:
        return f"not with container.image = {image}, which is used as it is; put them into that image"
    if Path(file).is_absolute():
        return "must be relative to this folder"
    if not os.path.isfile(file):  # Path's own raises for a name that is too long
        return "no such file"
    if not Path(file).resolve().is_relative_to(Path.cwd().resolve()):
        return "must lie in this folder or below, so that a copy of the folder has it"
    return "" if b"--hash=" in Path(file).read_bytes() else f"must have a hash for every package; {HOW}"


def package_inputs(container: Mapping[str, Any]) -> list[str]:
    """The files that the image depends on, besides those of an image without further packages."""
    return [container["packages"], *map(str, PACKAGES.values())] if container["packages"] else []


def file_hash(file: str | Path) -> str:
    """Twelve hex digits of the file's SHA-256."""
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12]


@contextmanager
def _package_context(file: str) -> Iterator[Path]:
    """A folder with what Docker, Podman and Apptainer install the packages from."""
    with tempfile.TemporaryDirectory(dir=CONTEXT, prefix=".packages-") as name:
        shutil.copy(PACKAGES["Dockerfile"], Path(name, "Dockerfile"))
        shutil.copy(PACKAGES["sh"], name)
        shutil.copy(file, Path(name, "packages.lock"))
        yield Path(name)


def hidden(text: str) -> str:
    """The text without the user name and password of any address in it."""
    return CREDENTIALS.sub("://***@", text)


def prepare(engine: str, why: str, wanted: Mapping[str, Any]) -> Marker:
    """Build or find the image of config.yaml's `container`, and describe it. BuildFailed leaves nothing behind."""
    if engine == "none":
        return Marker(engine=engine, why=why)
    base, image, further = wanted["base_image"], wanted["image"], wanted["packages"]
    # HEAD changes with every edit of the code.
    last = Missing().ask("revision", git, "log", "-1", "--format=%H", "--", str(CONTEXT)) or "unknown"
    arguments = {"BASE_IMAGE": base, "VERSION": __version__, "REVISION": last, "LOCK_HASH": file_hash(LOCK)}
    arguments |= cuda_versions() | wanted["build_args"]
    if engine == "apptainer":
        return _sif(why, arguments, image, further)
    if not image:
        return _described(engine, why, _built(engine, f"scalecard:{file_hash(LOCK)}", arguments, further), base=base)
    if not launch.has_image(engine, image):  # a machine that reaches no registry may already have it
        _run([engine, "pull", "--quiet", image])
    return _described(engine, why, image, base=None)


def _built(engine: str, tag: str, arguments: Mapping[str, str], further: str | None) -> str:
    """Build the image and, from it, one with further packages; the tag of the last."""
    if not launch.has_image(engine, arguments["BASE_IMAGE"]):
        _run([engine, "pull", arguments["BASE_IMAGE"]], failure=NoBaseImage)
    start = (engine, "run", "--rm", "--network", "none", "--entrypoint", "python3", arguments["BASE_IMAGE"])
    arguments = {**arguments, **own_torch(arguments["BASE_IMAGE"], start)}
    _run(_build(engine, tag, arguments, CONTEXT))
    if not further:
        return tag
    both = f"{tag}-{file_hash(further)}"
    with _package_context(further) as folder:
        _run(_build(engine, both, _on_top_of(tag, arguments, further), folder), ADVICE_ON_PACKAGES)
    return both


def _on_top_of(image: str, arguments: Mapping[str, str], further: str) -> dict[str, str]:
    """The build arguments of the image with further packages; those of the image below that it has no use for, too."""
    return {**arguments, "SCALECARD_IMAGE": image, "PACKAGES_HASH": file_hash(further)}


def cuda_versions() -> dict[str, str]:
    """What the lock makes the image a CUDA container of, by build argument, and the oldest CUDA of a driver for it."""
    cuda, cudnn, nccl = (locked_version(PACKAGES_OF_CUDA[name]) for name in ("cuda", "cudnn", "nccl"))
    return _cuda_arguments(cuda, cudnn, nccl)


def _cuda_arguments(cuda: str, cudnn: str, nccl: str) -> dict[str, str]:
    oldest = f"{cuda.partition('.')[0]}.0"  # drivers run every minor version of a major one
    return {"CUDA_VERSION": cuda, "CUDNN_VERSION": cudnn, "NCCL_VERSION": nccl, "OLDEST_CUDA": oldest}


def brings_torch(container: Mapping[str, Any]) -> bool:
    """Whether experiments may run with a PyTorch that is neither this environment's nor the lock's."""
    ours = re.findall(r"^ARG BASE_IMAGE=(\S+)", (CONTEXT / "Dockerfile").read_text(), re.MULTILINE)
    return container["engine"] != "none" and bool(container["image"] or container["base_image"] not in ours)


def own_torch(base: str, start: Sequence[str]) -> dict[str, str]:
    """What the base image's own PyTorch makes the image a CUDA container of, by build argument; empty if it has none.

    `start` starts Python in it. BuildFailed says what such a PyTorch lacks.
    """
    libraries = {name: PACKAGES_OF_CUDA[name] for name in ("cudnn", "nccl")}
    names = ["torch", "torchvision", *(package for packages in libraries.values() for package in packages)]
    done = subprocess.run([*start, "-c", ASK_FOR_TORCH, *names], capture_output=True, text=True)
    if done.returncode:  # as where it has no Python
        said = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        print(f"the base image does not say whether it has PyTorch ({said}): the locked one is installed", flush=True)
    if done.returncode or not done.stdout.strip():
        return {}
    found = json.loads(done.stdout.splitlines()[-1])
    if lacks := _unfit_torch(found):
        raise BuildFailed(
            f"container.base_image = {base}: its PyTorch would stay, but {lacks}. Accepted: an image with PyTorch 2.11"
            " or newer, torchvision, and Python 3.11 or newer; or one without PyTorch, which gets the locked one"
        )
    cudnn, nccl = (next((found[p] for p in packages if p in found), "unknown") for packages in libraries.values())
    made = _cuda_arguments(found["cuda"], cudnn, nccl) if found["cuda"] else {"CUDA_VERSION": "none"}
    print(f"PyTorch {found['torch']} of the base image stays, built for CUDA {made['CUDA_VERSION']}", flush=True)
    return {"TORCH": "base", "CUDNN_VERSION": cudnn, "NCCL_VERSION": nccl, "OLDEST_CUDA": "0.0", **made}


def _unfit_torch(found: Mapping[str, Any]) -> str:
    """Why that PyTorch cannot measure; empty if it can."""
    if tuple(map(int, re.findall(r"\d+", found["torch"])[:2])) < OLDEST_TORCH:
        return f"it is {found['torch']}"
    if tuple(found["python"]) < OLDEST_PYTHON:
        return f"it is for Python {'.'.join(map(str, found['python']))}"
    return "" if "torchvision" in found else "the image has no torchvision"


def _described(engine: str, why: str, name: str, *, base: str | None) -> Marker:
    """The marker of an image, by its id, because a tag may later mean another image."""
    done = subprocess.run([engine, "image", "inspect", name], capture_output=True, text=True, check=True)
    (facts,) = json.loads(done.stdout)
    labels = facts.get("Config", {}).get("Labels") or {}
    identity = facts["Id"] if facts["Id"].startswith("sha256:") else f"sha256:{facts['Id']}"
    return Marker(
        engine=engine,
        why=why,
        image=identity,
        digest=facts.get("Digest") or identity,
        base=base,
        lock=labels.get("scalecard.lock"),
        packages=labels.get("scalecard.packages"),
        size=facts["Size"],
    )


def _sif(why: str, arguments: Mapping[str, str], image: str | None, further: str | None) -> Marker:
    """A given .sif or reference, else a .sif built from Docker's or Podman's archive, or from the definition."""
    path = Path(image) if image and image.endswith(".sif") else SIF
    if path == SIF:
        with tempfile.TemporaryDirectory(dir=CONTEXT, prefix=".sif-") as folder:
            made = Path(folder, SIF.name)
            _build_sif(made, arguments, image, further)
            made.replace(SIF)  # a killed build never looks complete
    elif not path.exists():
        raise BuildFailed(f"container.image = {image}: no such file")
    with path.open("rb") as file:
        digest = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    return Marker(
        engine="apptainer",
        why=why,
        image=str(path.resolve()),
        digest=digest,
        base=None if image else arguments["BASE_IMAGE"],
        lock=None if image else arguments["LOCK_HASH"],
        packages=file_hash(further) if further else None,
        size=path.stat().st_size,
    )


def _build_sif(made: Path, arguments: Mapping[str, str], image: str | None, further: str | None) -> None:
    builder = next((engine for engine in ("docker", "podman") if not launch.why_silent(engine)), None)
    if image:
        _run(["apptainer", "build", str(made), f"docker://{image}"])
    elif builder:
        archive = made.with_suffix(".tar")
        tag = _built(builder, "scalecard:sif", arguments, further)
        save = ["--format", "docker-archive"] if builder == "podman" else []
        _run([builder, "save", *save, "--output", str(archive), tag])
        # Not into Apptainer's cache, where the layers of an archive that is then deleted would stay for good, 4 GB.
        _run(["apptainer", "build", "--disable-cache", str(made), f"docker-archive:{archive.resolve()}"])
    elif further:
        below = str(_sif_below(made.parent, arguments))
        with _package_context(further) as folder:
            given = _on_top_of(below, arguments, further) | {"FOLDER": str(folder)}
            _run(_defined(PACKAGES["def"], made, given), ADVICE_ON_PACKAGES)
    else:
        _from_definition(made, arguments)


def _sif_below(temporary: Path, arguments: Mapping[str, str]) -> Path:
    """The .sif without further packages. It is kept beside the other, so that other packages do not build it again."""
    files = [DEFINITION, *(CONTEXT / name for name in COPIED)]
    content = json.dumps(arguments).encode() + b"".join(file.read_bytes() for file in files)
    kept = CONTEXT / f"without-packages-{hashlib.sha256(content).hexdigest()[:12]}.sif"
    if not kept.exists():
        for old in CONTEXT.glob("without-packages-*.sif"):
            old.unlink()
        made = temporary / kept.name
        _from_definition(made, arguments)
        made.replace(kept)
    return kept


def _from_definition(made: Path, arguments: Mapping[str, str]) -> None:
    """The base image first, and its layers are kept: whether it can be had is then known."""
    base = str(made.with_name("base.sif"))
    _run(["apptainer", "pull", base, f"docker://{arguments['BASE_IMAGE']}"], failure=NoBaseImage)
    start = ("apptainer", "exec", "--cleanenv", "--contain", "--no-home", base, "python3")
    own = own_torch(arguments["BASE_IMAGE"], start)
    _run(_defined(DEFINITION, made, {**arguments, **own}))


def _defined(definition: Path, made: Path, arguments: Mapping[str, str]) -> list[str]:
    return ["apptainer", "build", "--warn-unused-build-args", *_options(arguments), str(made), str(definition)]


def _build(engine: str, tag: str, arguments: Mapping[str, str], context: Path) -> list[str]:
    """Docker takes the timestamp of the image's content from a build argument, Podman from an option."""
    same_time = ["--timestamp", EPOCH] if engine == "podman" else ["--build-arg", f"SOURCE_DATE_EPOCH={EPOCH}"]
    return [engine, "build", "--tag", tag, *_options(arguments), *same_time, str(context)]


def _options(arguments: Mapping[str, str]) -> list[str]:
    return [part for key, value in arguments.items() for part in ("--build-arg", f"{key}={value}")]


def _run(
    command: Sequence[str], advice: Mapping[str, str] = ADVICE, *, failure: type[BuildFailed] = BuildFailed
) -> None:
    """Run a command, streaming its output without passwords; the failure gives the last lines and what to do."""
    print("+", hidden(" ".join(command)), flush=True)
    if shutil.which(command[0]) is None:
        raise failure(f"{command[0]}: not installed")
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in map(hidden, process.stdout):
            sys.stdout.write(line)
            sys.stdout.flush()
            lines = [*lines[1 - TAIL :], line.rstrip()]
    if process.returncode:
        said = "\n  ".join(lines)
        known = (told for words, told in advice.items() if re.search(words, said.lower()))
        what = next(known, "see the whole log above; container: {engine: none} runs without an image")
        raise failure(
            f"`{' '.join(command[:2])}` failed with status {process.returncode}. Its last lines:\n  {said}\n"
            f"What to do: {what}."
        )


def choose(wanted: Mapping[str, Any], *, shared: bool) -> Marker:
    """Choose an engine, build or find the image, and try it.

    `shared`: the image is for other nodes, so it is not tried on this one. If the base image cannot be fetched, no
    container starts or the GPUs are not passed on, engine 'auto' falls back to the host's environment, and an engine
    chosen by name is an error.
    """
    engine, why = launch.choose(wanted["engine"], shared=shared)
    print(f"experiments run in {'the host environment' if engine == 'none' else engine}: {why}", flush=True)
    try:
        made = prepare(engine, why, wanted)
        if not shared:
            launch.refuse_unusable(made)
    except (NoBaseImage, launch.Unusable) as error:
        if wanted["engine"] != "auto":
            raise
        print(f"warning: {error}\nThe experiments run in the host's environment instead.", flush=True)
        reason = str(error).splitlines()[0].removesuffix(" Its last lines:")
        return Marker(engine="none", why=f"{engine} answers, but: {reason}")
    return made
