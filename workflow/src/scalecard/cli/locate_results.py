"""Where `compare` and others find results: a platform's name, a folder, a kept night, or a git revision."""

from collections.abc import Iterable
from pathlib import Path

from scalecard.hardware.environment import git
from scalecard.hardware.machine import Machine, from_facts, probe
from scalecard.records.files import is_result_file, load, parse, refuse_mixed_machines
from scalecard.records.record import Result
from scalecard.records.strict_json import load_object
from scalecard.report.kept_nights import KEPT, files_of, read_kept
from scalecard.report.night_folders import HISTORY, indices, is_night, nights

RESULTS = Path("results")
LAST, NOW = "last", "now"


def find(wanted: str) -> list[Result]:
    """The results of one platform.

    `wanted` is a platform under results/, a folder of result files, a folder (like results/) with one platform, a git
    revision, or REVISION:PLATFORM; or PLATFORM@NIGHT, what had been kept when a night ended: by its name, or @last. An
    empty PLATFORM is this machine's, whose present results are @now. ValueError says what was looked for and what
    exists.
    """
    for folder in (Path(wanted), RESULTS / wanted):
        if folder.is_dir():
            return _from_folder(folder)
    platform, at, night = wanted.partition("@")
    if at and (not platform or (RESULTS / platform).is_dir()):
        return _of_night(RESULTS / platform if platform else this_platform(), night, wanted)
    revision, _, platform = wanted.partition(":")
    if _is_revision(revision):
        return _from_revision(revision, platform)
    raise ValueError(
        f"'{wanted}': no folder, no platform under {RESULTS}/ (known: {_known()}) and no git revision of that name"
    )


def platform_folder(name: str) -> Path:
    """The folder of one platform, by its name or as a folder; ValueError says which ones exist."""
    for folder in (RESULTS / name, Path(name)):
        if folder.is_dir():
            inside = [] if _result_files(folder) or (folder / HISTORY).is_dir() else _platforms(folder)
            if len(inside) > 1:
                raise ValueError(f"'{name}': {_choose(str(folder), inside, '/')}")
            return folder / inside[0] if inside else folder
    raise ValueError(f"'{name}': no platform under {RESULTS}/ (known: {_known()}) and no such folder")


def every_platform(folders: Iterable[Path]) -> list[Path]:
    """The platforms' folders among these: each is one itself, or has some, as results/ has; ValueError if neither."""
    found = list[Path]()
    for folder in folders:
        own = [folder] if _result_files(folder) else [folder / name for name in _platforms(folder)]
        if not own:
            raise ValueError(f"'{folder}': no result files in it, nor in its folders")
        found += own
    return found


def result_files(folder: Path) -> list[Path]:
    """The result files in a platform's folder; ValueError if there are none."""
    if found := _result_files(folder):
        return found
    raise ValueError(f"'{folder}': no result files in it")


def this_platform() -> Path:
    """The folder of this machine's results, else of any; of several the latest one. ValueError if there are none."""
    known = [RESULTS / name for name in _platforms(RESULTS)]
    if not known:
        raise ValueError(f"no results under {RESULTS}/: measure first, or name a platform or a folder")
    here = probe()
    mine = [folder for folder in known if _is_of(folder, here)]
    return max(mine or known, key=lambda folder: max(path.stat().st_mtime for path in _result_files(folder)))


def _is_of(folder: Path, machine: Machine) -> bool:
    """True if the folder's machine.json describes this machine, or any node of its kind."""
    try:
        expected = from_facts(load_object(folder / "machine.json"))
    except (ValueError, TypeError):
        return False
    return machine.as_specific_as(expected).fingerprint == expected.fingerprint


def _of_night(folder: Path, night: str, name: str) -> list[Result]:
    """Results kept when a night ended: each experiment's latest result up to then, of the night's platform."""
    if night == NOW:
        return _from_folder(folder)
    platforms = [folder, *(path.parent.parent for path in indices(folder) if path.parent.parent != folder)]
    there = sorted((path for platform in platforms for path in nights(platform)), key=lambda path: path.name)
    chosen = there[-1:] if night == LAST else [path for path in there if path.name == night]
    if not chosen:
        kept = ", ".join(path.name for path in there[-5:]) or "none"
        raise ValueError(f"'{name}': no such night was kept of {folder.name} (the last ones: {kept}; or {LAST}, {NOW})")
    until = [path for path in nights(chosen[-1].parent.parent) if path.name <= chosen[-1].name]
    latest = {file.name: file for path in until for file in files_of(path)}
    return _one_platform(name, [read_kept(file) for file in latest.values()])


def _is_revision(name: str) -> bool:
    try:
        git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", folder=Path())
    except OSError:
        return False
    return True


def _known() -> str:
    return ", ".join(_platforms(RESULTS)) or "none"


def _platforms(folder: Path) -> list[str]:
    found = [path for path in folder.glob("*/*.json") if is_result_file(path)]
    return sorted({path.parent.name for path in found} - {HISTORY})


def _result_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.json") if is_result_file(path))


def _from_folder(folder: Path) -> list[Result]:
    if is_night(folder) and any(folder.glob(f"*{KEPT}")):
        return _one_platform(str(folder), [read_kept(file) for file in files_of(folder)])
    if files := _result_files(folder):
        return _one_platform(str(folder), [load(path) for path in files])
    inside = _platforms(folder)
    if len(inside) == 1:
        return _from_folder(folder / inside[0])
    raise ValueError(f"'{folder}': {_choose(str(folder), inside, '/') if inside else 'no result files in it'}")


def _from_revision(revision: str, platform: str) -> list[Result]:
    listed = git("ls-tree", "-r", "--name-only", revision, f"{RESULTS}/", folder=Path())
    paths = [path for path in map(Path, listed.splitlines()) if is_result_file(path) and len(path.parts) == 3]
    platforms = sorted({path.parent.name for path in paths})
    if not platform and len(platforms) == 1:
        platform = platforms[0]
    if platform not in platforms:
        there = _choose(revision, platforms, ":") if platforms else "no result files were committed in it"
        raise ValueError(f"'{revision}': {there}")
    names = [f"{revision}:{path}" for path in paths if path.parent.name == platform]
    return _one_platform(revision, [parse(git("show", name, folder=Path()), name) for name in names])


def _choose(name: str, platforms: list[str], separator: str) -> str:
    return f"several platforms, choose one: {', '.join(f'{name}{separator}{p}' for p in platforms)}"


def _one_platform(where: str, results: list[Result]) -> list[Result]:
    refuse_mixed_machines(results, where)
    return results
