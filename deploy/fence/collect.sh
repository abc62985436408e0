#!/bin/sh
# Puts nft, a shell, and what the fence's script calls, each with the libraries that it loads, below the folder DIR: the
# root of an image without a distribution.
# Usage: collect.sh DIR
set -eu
root=$1
mkdir -p "$root/bin"
# A program goes to /bin whatever its folder here, a library stays where the loader looks for it.
for name in sh nft sed; do
  program=$(command -v "$name") || { echo "collect.sh: $name is not installed" >&2; exit 1; }
  cp -L "$program" "$root/bin/$name"
  # The loader's own line has no arrow: `/lib64/ld-linux-x86-64.so.2 (0x…)`.
  ldd "$program" | sed -n 's/^.*[[:space:]]\(\/[^[:space:]]*\)[[:space:]](0x[0-9a-f]*)$/\1/p' | while read -r library; do
    mkdir -p "$root${library%/*}"
    cp -L "$library" "$root$library"
  done
done
cp "$(dirname "$0")/fence.sh" "$root/fence.sh"
chmod 755 "$root/fence.sh"
