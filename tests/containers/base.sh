#!/usr/bin/env bash
# A base image from Debian's packages, for a machine without an image registry: base.sh NAME. It has no Python, as those
# of nvidia/cuda have none.
set -euo pipefail
podman image exists "$1" && exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mmdebstrap --quiet --variant=minbase --include=ca-certificates \
  --customize-hook='copy-in /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs' bookworm "$work/base.tar"
podman import --quiet "$work/base.tar" "$1"
