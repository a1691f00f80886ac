#!/usr/bin/env bash
# Installs Podman and Apptainer for the tests in this folder on Debian 12, as root. Does nothing where they are.
set -euo pipefail

if ! command -v podman >/dev/null || ! command -v mmdebstrap >/dev/null || ! command -v patchelf >/dev/null; then
  apt-get update -q
  apt-get install -y -q --no-install-recommends podman buildah runc catatonit mmdebstrap patchelf squashfs-tools \
    libseccomp2 uidmap fuse-overlayfs
fi
command -v apptainer >/dev/null && exit 0

# Debian 12 has no Apptainer, and Debian unstable's needs a newer libc: both are unpacked beside the system's own.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{state/lists/partial,cache/archives/partial,debs,root}
mirror=$(grep -rhoE '(deb |URIs: )https?://[^ ]+/debian/?( |$)' /etc/apt --include='sources.list' --include='*.list' \
  --include='*.sources' | grep -oE 'https?://[^ ]+' | head -1)
for suite in sid trixie; do
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main"
done >"$work/sources.list"
apt="-o Dir::Etc::SourceList=$work/sources.list -o Dir::Etc::SourceParts=- -o Dir::State=$work/state
  -o Dir::State::Status=/var/lib/dpkg/status -o Dir::Cache=$work/cache"
# shellcheck disable=SC2086
apt-get $apt update -q
# shellcheck disable=SC2086
(cd "$work/debs" && apt-get $apt download -q apptainer libc6/trixie)
for deb in "$work"/debs/*.deb; do dpkg -x "$deb" "$work/root"; done

mkdir -p /opt/apptainer/lib /etc/apptainer /var/lib/apptainer/mnt/session
cp -a "$work"/root/usr/lib/x86_64-linux-gnu/*.so* /opt/apptainer/lib/
cp -a "$work/root/usr/lib/x86_64-linux-gnu/apptainer" /usr/lib/x86_64-linux-gnu/
cp -a "$work/root/etc/apptainer/." /etc/apptainer/
cp -a "$work/root/usr/bin/apptainer" /usr/bin/apptainer
for program in /usr/bin/apptainer /usr/lib/x86_64-linux-gnu/apptainer/bin/starter; do
  patchelf --set-interpreter /opt/apptainer/lib/ld-linux-x86-64.so.2 \
    --set-rpath /opt/apptainer/lib:/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu "$program"
done
apptainer version
