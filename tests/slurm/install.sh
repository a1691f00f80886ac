#!/usr/bin/env bash
# Installs what tests/test_slurm.py, test_nodes.py and test_profiles.py need on Debian 12, as root, where it is not.
set -euo pipefail
command -v slurmctld >/dev/null && command -v munged >/dev/null && command -v ip >/dev/null &&
  command -v rsync >/dev/null && exit 0
apt-get update -q
apt-get install -y -q --no-install-recommends slurm-wlm munge iproute2 rsync
