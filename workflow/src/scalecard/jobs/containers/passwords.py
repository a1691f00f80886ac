"""Keeps the passwords of proxies and package indexes out of logs: they are part of their addresses."""

import re

CREDENTIALS = re.compile(r"://[^/\s\"']*@")


def hidden(text: str) -> str:
    """The text without the user name and password of any address in it."""
    return CREDENTIALS.sub("://***@", text)
