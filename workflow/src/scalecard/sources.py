"""Where `compare` finds results: a platform's name, a folder, or a git revision in which they were committed."""

import subprocess
from pathlib import Path

from scalecard import schema
from scalecard.schema import Result

RESULTS = "results"


def find(name: str, root: Path = Path()) -> list[Result]:
    """The results of one platform.

    `name` is a platform under results/, a folder of result files, a folder (as results/) with one platform, a git
    revision, or REVISION:PLATFORM. ValueError says what was looked for and what there is.
    """
    for folder in (Path(root, name), Path(root, RESULTS, name)):
        if folder.is_dir():
            return _from_folder(folder)
    revision, _, platform = name.partition(":")
    if _git(root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}") is not None:
        return _from_revision(root, revision, platform)
    known = ", ".join(_platforms(Path(root, RESULTS))) or "none"
    raise ValueError(
        f"'{name}': no folder, no platform under {RESULTS}/ (there are: {known}), and no git revision of that name"
    )


def _platforms(folder: Path) -> list[str]:
    return sorted({path.parent.name for path in folder.glob("*/*.json") if path.name not in schema.NO_RESULTS})


def _from_folder(folder: Path) -> list[Result]:
    files = sorted(path for path in folder.glob("*.json") if path.name not in schema.NO_RESULTS)
    if files:
        return _one_platform(str(folder), [schema.load(path) for path in files])
    inside = _platforms(folder)
    if len(inside) == 1:
        return _from_folder(folder / inside[0])
    raise ValueError(f"'{folder}': {_choose(str(folder), inside, '/') if inside else 'no result files in it'}")


def _from_revision(root: Path, revision: str, platform: str) -> list[Result]:
    listed = _git(root, "ls-tree", "-r", "--name-only", revision, f"{RESULTS}/") or ""
    paths = [
        path for path in map(Path, listed.splitlines()) if path.suffix == ".json" and path.name not in schema.NO_RESULTS
    ]
    platforms = sorted({path.parent.name for path in paths})
    if not platform and len(platforms) == 1:
        platform = platforms[0]
    if platform not in platforms:
        there = _choose(revision, platforms, ":") if platforms else "no result files were committed in it"
        raise ValueError(f"'{revision}': {there}")
    mine = [path for path in paths if path.parent.name == platform]
    texts = {path: _git(root, "show", f"{revision}:{path}") or "" for path in mine}
    return _one_platform(revision, [schema.parse(text, f"{revision}:{path}") for path, text in texts.items()])


def _choose(name: str, platforms: list[str], separator: str) -> str:
    return f"several platforms, choose one: {', '.join(f'{name}{separator}{p}' for p in platforms)}"


def _one_platform(where: str, results: list[Result]) -> list[Result]:
    schema.refuse_mixed(results, where)
    return results


def _git(root: Path, *args: str) -> str | None:
    try:
        done = subprocess.run(["git", *args], cwd=root, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None
