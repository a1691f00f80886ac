"""Words for what gets published: no host name, address, user name or path of this machine.

Errors of libraries name all of these; a result keeps only what they say about the measurement.
"""

import getpass
import ipaddress
import os
import platform
import re
import tempfile
from pathlib import Path

# Folders that are alike on every machine; all other absolute paths are private.
COMMON = ("/dev", "/proc", "/sys", "/etc")
PATH = re.compile(r"(?P<quote>['\"])(?P<quoted>/[^'\"]*)(?P=quote)|(?<![\w/.<>])/[\w.+@~-]+(?:/[\w.+@~-]*)*")
ADDRESS = re.compile(r"(?<![\w.:])[0-9a-fA-F]*[.:][0-9a-fA-F.:]*[0-9a-fA-F](?!\w)")
URL = re.compile(r"\b\w+://[^\s'\")]+")
PEER = re.compile(r"\(([\w.-]+), (\d+)\)")  # how torch names a host and its port
SHORTEST = 2  # letters: a shorter name is a word like any other
NOT_PRIVATE = ("localhost", "root")


def anonymous(text: str) -> str:
    """The text without this machine's private names."""
    for folder in (os.getcwd(), str(Path.home()), tempfile.gettempdir()):  # these may contain spaces
        if len(folder) > 1:
            text = re.sub(rf"{re.escape(folder)}(?:/[^\s'\":,;)\]]*)?", "<path>", text)
    text = PATH.sub(_path, URL.sub("<address>", text))
    text = PEER.sub(r"(<host>, \2)", text)
    text = ADDRESS.sub(_address, text)
    host = platform.node()
    for name, what in ((host, "<host>"), (host.split(".")[0], "<host>"), (_user(), "<user>")):
        if len(name) >= SHORTEST and name not in NOT_PRIVATE:
            text = re.sub(rf"(?<![\w<]){re.escape(name)}(?:\.[\w-]+)*(?![\w>])", what, text)
    return text


def _path(found: "re.Match[str]") -> str:
    path = found["quoted"] or found[0]
    if any(path == common or path.startswith(f"{common}/") for common in COMMON):
        return found[0]
    quote = found["quote"] or ""
    return f"{quote}<path>{quote}"


def _address(found: "re.Match[str]") -> str:
    """Only what is an address: a time or a version is not."""
    address, port, _ = found[0].partition(":") if found[0].count(":") == 1 else (found[0], "", "")
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return found[0]
    return f"<address>{port and found[0][len(address) :]}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
