#!/bin/bash
# Installs what is not Python's, in the version of the base image's distribution; shared by the Dockerfile and the
# Apptainer definition: what NCCL needs to use InfiniBand, and the compilers with which torch.compile makes code for CPUs
# (C++) and for starting Triton's kernels (C). Where they cannot be had, the image is built without: then NCCL uses TCP
# between nodes, and a measurement on a node with InfiniBand warns; and what needs a compiler is skipped with that reason.
set -euo pipefail

quickly=(-o Acquire::Retries=0 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20)

# install APT-PACKAGES DNF-PACKAGES
install() {
  local apt dnf
  read -ra apt <<<"$1"
  read -ra dnf <<<"$2"
  if command -v apt-get >/dev/null; then
    DEBIAN_FRONTEND=noninteractive apt-get "${quickly[@]}" --quiet --yes --no-install-recommends install "${apt[@]}"
  elif command -v dnf >/dev/null; then
    dnf --quiet --assumeyes install "${dnf[@]}"
  else
    echo "neither apt-get nor dnf" >&2
    return 1
  fi
}

if command -v apt-get >/dev/null; then
  apt-get "${quickly[@]}" --quiet update || echo "warning: no list of the distribution's packages" >&2
fi
install "libibverbs1 ibverbs-providers" libibverbs ||
  echo "warning: the image has no libibverbs: NCCL will use TCP between nodes" >&2
install "g++ libc6-dev" gcc-c++ ||
  echo "warning: the image has no compiler: torch.compile will be left out" >&2

# What depends on the time of the build, or on the state of the mirror, besides the packages.
rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/ldconfig/* /var/cache/dnf /var/log/apt /var/log/dpkg.log \
  /var/log/dnf* /var/lib/dpkg/*-old
