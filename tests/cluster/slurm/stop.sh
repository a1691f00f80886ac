#!/usr/bin/env bash
# stop.sh FOLDER: ends what start.sh started there.
folder=$(realpath "$1")
scancel --user="$(id -un)" 2>/dev/null
for name in slurmd-n1 slurmd-n2 slurmctld munged; do
  [ -s "$folder/$name.pid" ] && kill "$(cat "$folder/$name.pid")"
done
for name in slurm gres cgroup; do
  [ "$(readlink "/etc/slurm/$name.conf")" = "$folder/$name.conf" ] && rm "/etc/slurm/$name.conf"
done
true
