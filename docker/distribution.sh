#!/bin/bash
# Installs what comes from the base image's distribution, in its version; shared by the Dockerfile and the Apptainer
# definition. Python, if the base image has none that is new enough, as NVIDIA's images have none. What NCCL needs to use
# InfiniBand, and the compilers with which torch.compile makes code for CPUs (C++) and for starting Triton's kernels (C):
# where these cannot be had, the image is built without. Then NCCL uses TCP between nodes, and a measurement on a node
# with InfiniBand warns; and what needs a compiler is skipped with that reason.
#
# An image of Debian's names the snapshot of Debian that it is made of. Packages come from that one, so that the same base
# image gives the same packages. Where it cannot be reached, and for images that name none, they are those of the day of the
# build, and the build says so.
set -euo pipefail

today=(-o Acquire::Retries=0 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20)
options=("${today[@]}")
sources=${SOURCES:-/etc/apt/sources.list.d/debian.sources}
if grep -Eqs '^# https?://snapshot\.debian\.org/' "$sources"; then
  pinned=$(mktemp --suffix=.sources)
  # Above the line with the mirror stands the snapshot that was its content.
  sed -E '/^# https?:\/\/snapshot\.debian\.org\//{s/^# /URIs: /;n;d}' "$sources" >"$pinned"
  options+=(-o "Dir::Etc::SourceList=$pinned" -o Dir::Etc::SourceParts=- -o Acquire::Check-Valid-Until=false
    -o Acquire::Retries=2)
  echo "packages of the distribution: $(sed -nE 's/^URIs: //p' "$pinned" | tr '\n' ' ')"
else
  echo "packages of the distribution: those of today, because the base image names no snapshot of Debian"
fi

# install APT-PACKAGES DNF-PACKAGES
install() {
  local apt dnf
  read -ra apt <<<"$1"
  read -ra dnf <<<"$2"
  if command -v apt-get >/dev/null; then
    DEBIAN_FRONTEND=noninteractive apt-get "${options[@]}" --quiet --yes --no-install-recommends install "${apt[@]}"
  elif command -v dnf >/dev/null; then
    dnf --quiet --assumeyes install "${dnf[@]}"
  else
    echo "neither apt-get nor dnf" >&2
    return 1
  fi
}

if command -v apt-get >/dev/null; then
  if [ -n "${pinned:-}" ] && ! apt-get "${options[@]}" -o APT::Update::Error-Mode=any --quiet update; then
    echo "warning: the base image's snapshot of Debian cannot be reached: packages are those of today" >&2
    options=("${today[@]}")
    rm "$pinned" && unset pinned
  fi
  [ -n "${pinned:-}" ] || apt-get "${options[@]}" --quiet update ||
    echo "warning: no list of the distribution's packages" >&2
fi
has_python() { python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

# Older distributions have a newer Python under another name. Its headers are for what torch.compile makes.
for version in "" .13 .12 .11; do
  has_python && break
  install "python3$version-venv python3$version-dev" "python3$version-devel" || continue
  [ -z "$version" ] || ln -sf "$(command -v "python3$version")" /usr/local/bin/python3
done
has_python || {
  echo "error: the base image has no Python 3.11 or newer with its venv module, and its distribution neither" >&2
  exit 1
}

install "libibverbs1 ibverbs-providers" libibverbs ||
  echo "warning: the image has no libibverbs: NCCL will use TCP between nodes" >&2
install "g++ libc6-dev" gcc-c++ ||
  echo "warning: the image has no compiler: torch.compile will be left out" >&2

# What depends on the time of the build, or on the state of the mirror, besides the packages.
rm -rf "${pinned:-}" /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/ldconfig/* /var/cache/dnf /var/log/apt /var/log/dpkg.log \
  /var/log/dnf* /var/lib/dpkg/*-old
