#!/bin/sh
# Starts a Slurm of one node, trains a study of two runs on it, and stops it again. As root, on Debian:
#   apt-get install --no-install-recommends slurmctld slurmd slurm-client munge
#   PYTHON=.venv/bin/python benchmarks/slurm_here.sh
set -eu
here=$(mktemp -d) python=${PYTHON:-python3} host=$(hostname -s)
chmod 755 "$here" && mkdir -m 700 "$here/munge" && mkdir "$here/state" "$here/spool"
(umask 077 && head -c 1024 /dev/urandom >"$here/munge/key")
cat >"$here/slurm.conf" <<CONF
ClusterName=one
SlurmctldHost=$host
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$here/munge.sock
StateSaveLocation=$here/state
SlurmdSpoolDir=$here/spool
SlurmctldPidFile=$here/slurmctld.pid
SlurmdPidFile=$here/slurmd.pid
SlurmctldLogFile=$here/slurmctld.log
SlurmdLogFile=$here/slurmd.log
SlurmctldPort=16827
SlurmdPort=16828
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
AccountingStorageType=accounting_storage/none
ReturnToService=2
NodeName=$host CPUs=2 State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=60 State=UP
CONF
export SLURM_CONF="$here/slurm.conf"
stop() {
    for pid in slurmd.pid slurmctld.pid munge/munged.pid; do
        [ ! -s "$here/$pid" ] || kill "$(cat "$here/$pid")" || true
    done
}
trap stop EXIT
munged --force --key-file "$here/munge/key" --socket "$here/munge.sock" \
    --pid-file "$here/munge/munged.pid" --log-file "$here/munge/log" --seed-file "$here/munge/seed"
slurmctld
slurmd -N "$host"
srun --quiet sinfo  # waits until the node is there
"$python" -m invint study digits --only cnn --sizes 100 --seeds 2 --scale 0.05 --jobs 2 \
    --engine slurm --slurm cpus-per-task=1 --slurm time=10 --runs "$here/runs"
echo "scripts and logs of the jobs: $here/runs/.jobs"
