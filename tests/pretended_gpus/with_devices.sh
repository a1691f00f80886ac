#!/bin/bash
# Runs a command that finds the pretended cards where the kernel shows real ones, in /sys/bus/pci/devices (on NUMA node 0,
# next to all cores) and /dev/nvidia*, and that waits for no measurement of this machine: with_devices.sh COMMAND ...
# Needs root: a mount namespace of its own hides the machine's own devices from this command only.
set -euo pipefail
export PRETEND_GPUS="${PRETEND_GPUS:?how many}"
exec unshare --mount --propagation private bash -euo pipefail -c '
  mount -t tmpfs none /sys/bus
  mkdir -p /sys/bus/pci/devices /sys/bus/dev
  for name in null zero full random urandom tty shm pts; do
    [ -e "/dev/$name" ] || continue
    if [ -d "/dev/$name" ]; then mkdir "/sys/bus/dev/$name"; else touch "/sys/bus/dev/$name"; fi
    mount --rbind "/dev/$name" "/sys/bus/dev/$name"
  done
  ln -s pts/ptmx /sys/bus/dev/ptmx
  ln -s /proc/self/fd /sys/bus/dev/fd
  for ((stream = 0; stream < 3; stream++)); do
    names=(stdin stdout stderr)
    ln -s "/proc/self/fd/$stream" "/sys/bus/dev/${names[stream]}"
  done
  touch /sys/bus/dev/nvidiactl
  for ((i = 0; i < PRETEND_GPUS; i++)); do
    touch "/sys/bus/dev/nvidia$i"
    card=/sys/bus/pci/devices/$(printf "0000:%02x:00.0" $((16 + i)))
    mkdir "$card"
    echo 0 >"$card/numa_node"
    cat /sys/devices/system/cpu/online >"$card/local_cpulist"
    echo 0x10de >"$card/vendor"
    echo 0x030200 >"$card/class"
  done
  mount --rbind /sys/bus/dev /dev

  lock=/tmp/scalecard.lock
  [ -e "$lock" ] || (umask 0 && touch "$lock")
  (umask 0 && touch /sys/bus/lock)
  mount --bind /sys/bus/lock "$lock"
  exec "$@"' bash "$@"
