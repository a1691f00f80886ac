"""Where `compare` finds results: a platform's name, a folder, or a git revision in which they were committed."""

from pathlib import Path

from scalecard.hardware.environment import git
from scalecard.records.files import is_result_file, load, parse, refuse_mixed_machines
from scalecard.records.record import Result

RESULTS = "results"


def find(name: str, root: Path = Path()) -> list[Result]:
    """The results of one platform.

    `name` is a platform under results/, a folder of result files, a folder (like results/) with one platform, a git
    revision, or REVISION:PLATFORM. ValueError says what was looked for and what exists.
    """
    for folder in (Path(root, name), Path(root, RESULTS, name)):
        if folder.is_dir():
            return _from_folder(folder)
    revision, _, platform = name.partition(":")
    if _is_revision(root, revision):
        return _from_revision(root, revision, platform)
    known = ", ".join(_platforms(Path(root, RESULTS))) or "none"
    raise ValueError(
        f"'{name}': no folder, no platform under {RESULTS}/ (known: {known}) and no git revision of that name"
    )


def _is_revision(root: Path, name: str) -> bool:
    try:
        git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", folder=root)
    except OSError:
        return False
    return True


def _platforms(folder: Path) -> list[str]:
    return sorted({path.parent.name for path in folder.glob("*/*.json") if is_result_file(path)})


def _from_folder(folder: Path) -> list[Result]:
    files = sorted(path for path in folder.glob("*.json") if is_result_file(path))
    if files:
        return _one_platform(str(folder), [load(path) for path in files])
    inside = _platforms(folder)
    if len(inside) == 1:
        return _from_folder(folder / inside[0])
    raise ValueError(f"'{folder}': {_choose(str(folder), inside, '/') if inside else 'no result files in it'}")


def _from_revision(root: Path, revision: str, platform: str) -> list[Result]:
    listed = git("ls-tree", "-r", "--name-only", revision, f"{RESULTS}/", folder=root)
    paths = [path for path in map(Path, listed.splitlines()) if is_result_file(path)]
    platforms = sorted({path.parent.name for path in paths})
    if not platform and len(platforms) == 1:
        platform = platforms[0]
    if platform not in platforms:
        there = _choose(revision, platforms, ":") if platforms else "no result files were committed in it"
        raise ValueError(f"'{revision}': {there}")
    mine = [path for path in paths if path.parent.name == platform]
    names = [f"{revision}:{path}" for path in mine]
    return _one_platform(revision, [parse(git("show", name, folder=root), name) for name in names])


def _choose(name: str, platforms: list[str], separator: str) -> str:
    return f"several platforms, choose one: {', '.join(f'{name}{separator}{p}' for p in platforms)}"


def _one_platform(where: str, results: list[Result]) -> list[Result]:
    refuse_mixed_machines(results, where)
    return results
