#!/usr/bin/env bash
# Installs what the tests compare with: the tools that make archives, fusermount3 for the tests of unprivileged use, and the
# real ratarmount and a server for S3 (moto) in a virtual environment under target/. Where something cannot be installed, the tests that need it say so.
set -u
cd "$(dirname "$0")/.."

packages=(tar bzip2 xz-utils lzip zstd lz4 pigz lbzip2 pbzip2 ncompress lzop lrzip brotli tabix libarchive-tools attr acl fio fuse3 strace procps libcap2-bin python3 python3-snappy python3-venv)
packages+=(zip unzip p7zip-full openssl)
packages+=(cpio binutils)
packages+=(squashfs-tools)
packages+=(genisoimage xorriso)
packages+=(e2fsprogs dosfstools mtools exfatprogs exfat-fuse fdisk qemu-utils android-sdk-libsparse-utils erofs-utils ntfs-3g)
packages+=(rpm gcab cabextract lhasa jlha-utils arj wget)
packages+=(sqlite3 mtree-netbsd wimtools)
packages+=(qpdf poppler-utils)
packages+=(umoci)
packages+=(curl rclone)
packages+=(nginx apache2)
packages+=(openssh-client openssh-server)
packages+=(vsftpd python3-pyftpdlib python3-openssl)
missing=()
for package in "${packages[@]}"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
    echo "tests/prepare.sh: installing ${missing[*]}"
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        export DEBIAN_FRONTEND=noninteractive
        { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >/dev/null ||
            echo "tests/prepare.sh: could not install all of them; some tests are left out"
    else
        echo "tests/prepare.sh: not root on Debian; install them by hand, or some tests are left out"
    fi
fi

peers=${TARNFS_PEERS:-target/peers}
if [ ! -x "$peers/bin/ratarmount" ]; then
    echo "tests/prepare.sh: installing ratarmount into $peers"
    mkdir -p "$(dirname "$peers")"
    { python3 -m venv "$peers" && "$peers/bin/pip" install --quiet --disable-pip-version-check 'ratarmount==1.3.*'; } ||
        { rm -rf "$peers"; echo "tests/prepare.sh: could not install it; the tests against it are left out"; }
fi
if [ -x "$peers/bin/pip" ] && [ ! -x "$peers/bin/moto_server" ]; then
    echo "tests/prepare.sh: installing moto into $peers"
    "$peers/bin/pip" install --quiet --disable-pip-version-check 'moto[s3,server]==5.*' ||
        echo "tests/prepare.sh: could not install it; the tests of s3:// are left out"
fi
exit 0
