#!/usr/bin/env bash
# `make` with some of the smoke workflow on another Python than 3.11, the first that is found of those that work; skipped,
# with a line that says so, if there is none. One experiment of each kind: images, ranks, devices, and a figure.
set -euo pipefail
cd "$(dirname "$0")/../.."

versions=$(pyenv root 2>/dev/null || true)/versions
for python in python3.13 python3.12 "$versions"/3.13.*/bin/python "$versions"/3.12.*/bin/python; do
  "$python" -c 'import ensurepip' 2>/dev/null || continue
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$work"
  "$python" --version
  env --unset=PYTHONPATH make --directory "$work" PYTHON="$python" ARGS="results/figures/ddp.svg strategies heterogeneous --configfile tests/smoke.yaml"
  grep --quiet "\"python\": \"$("$python" -c 'import platform; print(platform.python_version())')\"" \
    "$work"/results/*/ddp.json
  exit
done
echo "skipped: neither Python 3.13 nor 3.12 is installed"
