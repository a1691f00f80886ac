#!/bin/bash
# Installs further packages into FOLDER, into which install.sh has installed; shared by packages.Dockerfile and
# packages.def. Beside it is packages.lock.
#   packages.sh FOLDER
set -euo pipefail
folder=$1 here=$(dirname "$0")
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-1767225600} PYTHONHASHSEED=0
before=$(mktemp)

# What is locked, and a PyTorch of the base image, stay as they are: another version is an error.
"$folder/bin/python" -m pip install --progress-bar off --no-cache-dir --no-compile --require-hashes \
  --requirement "$here/packages.lock" --constraint "$folder/requirements.lock"

# Bytecode and timestamps as in install.sh, but of the new files alone: the layer would hold all others once more.
find "$folder/lib" -name '*.py' -cnewer "$before" -print0 |
  xargs -0 -r "$folder/bin/python" -m compileall -q --invalidation-mode unchecked-hash >/dev/null || true
find "$folder" -cnewer "$before" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +
rm "$before"
