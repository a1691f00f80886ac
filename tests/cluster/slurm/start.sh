#!/usr/bin/env bash
# start.sh FOLDER: a Slurm cluster of two nodes, n1 and n2, on this machine, as root. Each has two GPUs, which are
# /dev/null, and, as two machines would, a lock of its own on measuring. Authentication is munge's.
set -euo pipefail
folder=$(realpath -m "$1") host=$(hostname -s)
mkdir -p "$folder"/state "$folder"/log /etc/slurm
for i in 0 1 2 3; do [ -e "$folder/nvidia$i" ] || mknod "$folder/nvidia$i" c 1 3; done

(umask 077 && head -c 128 /dev/urandom >"$folder/munge.key")
munged --force --socket="$folder/munge.sock" --key-file="$folder/munge.key" --pid-file="$folder/munged.pid" \
  --log-file="$folder/log/munged.log" --seed-file="$folder/munge.seed"

# No driver knows these GPUs, which would be an error: the tasks measure the CPU.
printf '#!/bin/sh\necho export CUDA_VISIBLE_DEVICES=-1\n' >"$folder/task_prolog"
chmod +x "$folder/task_prolog"

cpus=$(nproc)
cat >"$folder/slurm.conf" <<END
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=26817
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$folder/munge.sock
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
TaskProlog=$folder/task_prolog
ReturnToService=2
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=2
GresTypes=gpu
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/filetxt
JobCompLoc=$folder/log/jobcomp.txt
MinJobAge=600
KillWait=5
StateSaveLocation=$folder/state
SlurmctldPidFile=$folder/slurmctld.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdSpoolDir=$folder/spool-%n
SlurmdPidFile=$folder/slurmd-%n.pid
SlurmdLogFile=$folder/log/slurmd-%n.log
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=26821 CPUs=$cpus RealMemory=4000 Gres=gpu:h100:2 State=UNKNOWN
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=26822 CPUs=$cpus RealMemory=4000 Gres=gpu:h100:2 State=UNKNOWN
PartitionName=gpu Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
END
cat >"$folder/gres.conf" <<END
AutoDetect=off
NodeName=n1 Name=gpu Type=h100 File=$folder/nvidia[0-1]
NodeName=n2 Name=gpu Type=h100 File=$folder/nvidia[2-3]
END
echo "CgroupPlugin=cgroup/v1" >"$folder/cgroup.conf"
# Snakemake's job step drops SLURM_CONF: the files must be where every Slurm command looks.
for name in slurm gres cgroup; do ln -sfn "$folder/$name.conf" "/etc/slurm/$name.conf"; done

slurmctld -c
touch /tmp/scalecard.lock
for node in n1 n2; do
  touch "$folder/lock-$node"
  unshare --mount sh -c "mount --bind '$folder/lock-$node' /tmp/scalecard.lock && exec slurmd -N $node -c"
done
for _ in $(seq 100); do
  [ "$(sinfo --noheader --Node --format=%T 2>/dev/null | grep -c idle)" = 2 ] && exit 0
  sleep 0.2
done
echo "the nodes did not become idle; see $folder/log" >&2
exit 1
