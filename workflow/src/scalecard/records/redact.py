"""Removes names, paths and hosts from free text: results and reports get published.

Notes and warnings quote errors of the system and of libraries, which name paths, hosts and addresses.
"""

import functools
import getpass
import ipaddress
import os
import platform
import re
from typing import Any

TELL_NOTHING = {"localhost", "root", "user"}
URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>]+", re.IGNORECASE)
# An absolute path, but not 'samples/s' or 'results/x'. What the kernel names (/dev, /proc, /sys) is alike everywhere.
PATH = re.compile(r"(?<![\w.\]~/-])(?:~\w*|[A-Za-z]:)?/(?!/|dev/|proc/|sys/)[\w.@+~-][^\s'\",;:()<>|]*")
QUOTED_PATH = re.compile(r"(['\"])(?:~\w*)?/(?!/|dev/|proc/|sys/)[^'\"]+\1")
IPV4 = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\.?\w)")
IPV6 = re.compile(r"(?<![\w.:])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:])")
MAC = re.compile(r"(?<![\w:])(?:[0-9A-Fa-f]{2}:){5,}[0-9A-Fa-f]{2}(?![\w:])")
# As torch and its rendezvous name the other end: '(node17, 29500)' and 'node17:29500', but not 'Backend.cpp:1234'.
ENDPOINTS = (
    re.compile(r"(?<=\()[\w.-]+(?=, \d{4,5}\))"),
    re.compile(r"(?<![\w.-])(?![\w.-]*\.(?:py|cpp|cu|cc|hpp|h|c):)[A-Za-z][\w.-]*(?=:\d{4,5}\b)"),
)


def anonymous(text: str) -> str:
    """One line of text without absolute paths, addresses, host names or this user's name."""
    text = " ".join(text.split())
    text = PATH.sub("[path]", QUOTED_PATH.sub(r"\1[path]\1", URL.sub("[address]", text)))
    for address in (IPV4, IPV6):
        text = address.sub(_hidden_address, text)
    text = MAC.sub("[address]", text)
    for endpoint in ENDPOINTS:
        text = endpoint.sub("[host]", text)
    for word, names in (("[host]", _hosts()), ("[user]", _user())):
        text = names.sub(word, text) if names else text
    return text


def without_paths(value: Any) -> Any:
    """Settings, whatever they are nested in, without absolute paths."""
    if isinstance(value, dict):
        return {key: without_paths(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_paths(part) for part in value]
    return PATH.sub("[path]", value) if isinstance(value, str) else value


def _hidden_address(found: re.Match[str]) -> str:
    try:
        ipaddress.ip_address(found[0])
    except ValueError:
        return found[0]
    return "[address]"


@functools.cache
def _hosts() -> re.Pattern[str] | None:
    """This host, with or without its domain, and the nodes of a Slurm job: 'gpu[01-04],login' is gpu01 and so on."""
    names = [platform.node(), platform.node().partition(".")[0]]
    listed = re.sub(r"\[[^\]]*\]", "[]", os.environ.get("SLURM_JOB_NODELIST", "")).split(",")
    return _any_of([*names, *filter(None, listed)])


@functools.cache
def _user() -> re.Pattern[str] | None:
    try:
        return _any_of([getpass.getuser()])
    except (KeyError, OSError):  # a user without a name, as in a container
        return None


def _any_of(names: list[str]) -> re.Pattern[str] | None:
    """Whole words; '[]' stands for a number, and what is too short to be told from a word of the text is left."""
    known = sorted({name for name in names if len(name) > 2 and name not in TELL_NOTHING}, key=len, reverse=True)
    words = "|".join(re.escape(name).replace(r"\[\]", r"\d+") for name in known)
    return re.compile(rf"(?<![\w.-])(?:{words})(?:\.[\w-]+)*(?![\w-])") if words else None
