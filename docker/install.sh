#!/bin/bash
# Installs the locked dependencies into FOLDER; shared by the Dockerfile and the Apptainer definition.
#   install.sh FOLDER REQUIREMENTS.LOCK lock|base
# The last says whose PyTorch it is. With `base`, python3's own stays, with its CUDA libraries: the rest of the lock is
# installed, and comes before what python3 has.
set -euo pipefail
folder=$1 lock=$2 torch=$3
wanted=$folder/requirements.lock # packages.sh keeps further packages to it
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-1767225600} PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=1

python3 -m venv "$folder"
if [ "$torch" = base ]; then
  awk -f "$(dirname "$0")/without_torch.awk" "$lock" >"$wanted"
else
  cp "$lock" "$wanted"
fi
"$folder/bin/python" -m pip install --progress-bar off --no-cache-dir --no-compile --require-hashes --requirement "$wanted"

if [ "$torch" = base ]; then
  packages=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  python3 -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parents[1])' >"$packages/own-torch.pth"
  "$folder/bin/python" -c 'import torch, torchvision; from importlib.metadata import version
for name in ("torch", "torchvision"): print(f"{name}=={version(name)}")' | tee -a "$wanted"
else
  # The CUDA that the labels and the driver's check name is that of the PyTorch which was installed.
  cuda=$(sed -nE 's/^nvidia-cuda-runtime==([0-9]+\.[0-9]+).*/\1/p' "$lock")
  "$folder/bin/python" -c 'import sys, torch
if torch.version.cuda != sys.argv[1]:
    sys.exit(f"error: PyTorch {torch.__version__} is built for CUDA {torch.version.cuda}, the lock has {sys.argv[1]}")' \
    "$cuda"
fi

# Bytecode that depends on the sources alone. Some packages ship files for other Python versions: they do not compile.
"$folder/bin/python" -m compileall -q -j 0 --invalidation-mode unchecked-hash "$folder/lib" >/dev/null || true

# The same timestamp for every file, so that the same lock gives the same layer.
find "$folder" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +
