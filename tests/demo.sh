#!/usr/bin/env bash
# Shows what tarnfs does, on an archive of real files.
set -euo pipefail
tarnfs=$(realpath "$1")
folder=$(mktemp -d)
trap '"$tarnfs" -u "$folder/doc" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"

say() { printf '\n$ %s\n' "$*"; }

say "tar -czf doc.tar.gz /usr/share/doc"
tar -czf doc.tar.gz --exclude='*/tarnfs*' -C /usr/share doc 2>/dev/null
ls -lh doc.tar.gz | cut -d' ' -f5-

say "tarnfs doc.tar.gz          # reads the archive once, writes its index, mounts it at ./doc"
time "$tarnfs" doc.tar.gz
mount | grep "$folder"

say "ls doc/doc | head -5"
ls doc/doc | head -5 || true

file=$(cd doc && find . -type f -name copyright | LC_ALL=C sort | sed -n 1p)
say "head -c 300 doc/${file#./}"
head -c 300 "doc/$file"

say "find doc -type f | wc -l"
find doc -type f | wc -l

say "tarnfs -u doc"
"$tarnfs" -u doc

say "tarnfs doc.tar.gz          # again: milliseconds, from the index"
time "$tarnfs" doc.tar.gz
cmp "doc/$file" <(tar -xzOf doc.tar.gz "${file#./}") && echo "the same bytes as tar gives"
"$tarnfs" -u doc

say "tarnfs ls -l doc.tar.gz doc | head -3"
"$tarnfs" ls -l doc.tar.gz doc | head -3 || true
