#!/usr/bin/env bash
# Makes what a release has, in the folder FOLDER: an archive with the static binary, its manual pages, its completions and
# the systemd unit; the list of what the binary is made of; and their SHA-256.
#
#   deploy/release/make.sh target/release-files
#
# The same revision and compiler make the same files, byte for byte.
set -euo pipefail
if (($# != 1)); then
  echo 'usage: deploy/release/make.sh FOLDER' >&2
  exit 2
fi
mkdir -p "$1"
out=$(cd -P "$1" && pwd -P)
cd -P "$(dirname "$0")/../.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
deploy/image/build.sh "$work/context"
sortie=$work/context/sortie

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
host=$(rustc -vV | sed -n 's/^host: //p')
name=sortie-$version-$host
place=$work/$name
mkdir -p "$place/man/man1" "$place/completions" "$place/systemd"
install -m 755 "$sortie" "$place/sortie"
"$sortie" man --out "$place/man/man1"
for shell in bash elvish fish powershell zsh; do
  "$sortie" completions "$shell" >"$place/completions/sortie.$shell"
done
install -m 644 deploy/systemd/sortie.service "$place/systemd/sortie.service"
install -m 644 CHANGELOG.md "$place/CHANGELOG.md"

chmod -R u=rwX,go=rX "$place"
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --format=gnu -C "$work" -cf - "$name" | gzip -9n >"$out/$name.tar.gz"
deploy/release/sbom.py "$host" >"$out/$name.cdx.json"
(cd "$out" && sha256sum "$name.tar.gz" "$name.cdx.json" >SHA256SUMS)
