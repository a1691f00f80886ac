#!/usr/bin/env bash
# Installs what the tests in tests/cluster need on Debian 12, as root, if it is missing.
set -euo pipefail
command -v slurmctld >/dev/null && command -v munged >/dev/null && command -v ip >/dev/null &&
  command -v rsync >/dev/null && exit 0
apt-get update -q
apt-get install -y -q --no-install-recommends slurm-wlm munge iproute2 rsync
