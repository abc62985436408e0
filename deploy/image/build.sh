#!/usr/bin/env bash
# Builds the binary of the image, one static file that needs nothing of a distribution, and puts it into the folder that
# Dockerfile.scratch copies:
#
#   deploy/image/build.sh target/context
#   docker build -t sortie:0.1.0 -f deploy/image/Dockerfile.scratch target/context
#
# SORTIE_REVISION is the revision that `sortie --version` shows: that of git where it is not set. The same sources and the
# same compiler make the same binary, in whatever folder they are: no path of this machine and no time is in it.
# CARGO_TARGET_DIR is where it is built, below `image/`; `target` where it is not set.
set -euo pipefail
if (($# != 1)); then
  echo 'usage: deploy/image/build.sh FOLDER' >&2
  exit 2
fi
mkdir -p "$1"
context=$(cd -P "$1" && pwd -P)
cd -P "$(dirname "$0")/../.."

host=$(rustc -vV | sed -n 's/^host: //p')
target=${CARGO_TARGET_DIR:-target}/image
# The names of the registry's folders are of this machine too.
cargo_home=${CARGO_HOME:-$HOME/.cargo}
mkdir -p "$target"
target=$(cd -P "$target" && pwd -P)

if [[ -z ${SORTIE_REVISION:-} ]]; then
  SORTIE_REVISION=$(git describe --always --abbrev=12 --exclude='*' --dirty 2>/dev/null || echo unknown)
fi
SORTIE_RUSTC=$(rustc --version | cut -d' ' -f2)
export SORTIE_REVISION SORTIE_RUSTC

flags=(-C target-feature=+crt-static)
c_flags=()
# The later of two that fit wins.
for map in "$cargo_home=/cargo" "$PWD=/sortie" "$target=/target"; do
  flags+=(--remap-path-prefix "$map")
  c_flags+=("-ffile-prefix-map=$map")
done
CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f'; printf '%s' "${flags[*]}")
CFLAGS="${CFLAGS:-} ${c_flags[*]}"
export CARGO_ENCODED_RUSTFLAGS CFLAGS

# With a target named, the flags are not those of build scripts, which need no static libraries.
cargo build --locked --profile dist --bin sortie --target "$host" --target-dir "$target"

# Put into its place as a whole, and left alone where it is the same: somebody may be running it.
if ! cmp -s "$target/$host/dist/sortie" "$context/sortie"; then
  copy=$(mktemp "$context/.sortie.XXXXXX")
  cp "$target/$host/dist/sortie" "$copy"
  chmod 755 "$copy"
  mv "$copy" "$context/sortie"
fi
# Empty folders that belong to the gateway: a volume that is mounted over one takes its owner.
mkdir -p "$context/own/var/lib/sortie" "$context/own/run/sortie"
