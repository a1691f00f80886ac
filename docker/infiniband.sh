#!/bin/bash
# Installs what NCCL needs to use InfiniBand, in the version of the base image's distribution; shared by the Dockerfile
# and the Apptainer definition. Where the distribution's packages cannot be had, the image is built without: then NCCL
# uses TCP between nodes, and a measurement on a node with InfiniBand warns.
set -euo pipefail

install() {
  if command -v apt-get >/dev/null; then
    local quickly=(-o Acquire::Retries=0 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20)
    apt-get "${quickly[@]}" --quiet update &&
      DEBIAN_FRONTEND=noninteractive apt-get "${quickly[@]}" --quiet --yes --no-install-recommends install \
        libibverbs1 ibverbs-providers
  elif command -v dnf >/dev/null; then
    dnf --quiet --assumeyes install libibverbs
  else
    echo "neither apt-get nor dnf" >&2
    return 1
  fi
}

install || echo "warning: the image has no libibverbs: NCCL will use TCP between nodes" >&2

# What depends on the time of the build, or on the state of the mirror, besides the packages.
rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/ldconfig/* /var/cache/dnf /var/log/apt /var/log/dpkg.log \
  /var/log/dnf* /var/lib/dpkg/*-old
