#!/usr/bin/env bash
# Installs the programs that tarnfs is compared with: ratarmount from PyPI into a virtual environment, the others from Debian.
set -u
cd "$(dirname "$0")/.."
missing=()
for package in archivemount libarchive-tools bzip2 lbzip2 xz-utils zstd lz4 pigz pixz zip 7zip fuse-zip squashfs-tools squashfuse python3-venv isal time fuse-overlayfs libfuse3-dev gcc pkg-config git make nginx curl; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >/dev/null ||
        echo "bench/peers.sh: not all of ${missing[*]} could be installed; they are left out"
fi
peers=${TARNFS_PEERS:-target/peers}
TARNFS_PEERS=$peers tests/prepare.sh
# What ratarmount needs to read from a server (remote.py).
if [ -x "$peers/bin/pip" ] && ! "$peers/bin/python" -c 'import fsspec, aiohttp' 2>/dev/null; then
    "$peers/bin/pip" install --quiet --disable-pip-version-check 'fsspec[http]' || echo "bench/peers.sh: remote.py leaves ratarmount out"
fi
exit 0
