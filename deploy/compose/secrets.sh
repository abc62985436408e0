#!/bin/sh
# Makes the secrets of compose.yaml where there are none: the runtime's key and the tool's signing secret.
# Usage: secrets.sh [FOLDER]
set -eu
folder=${1:-$(dirname "$0")/secrets}
mkdir -p "$folder"
random() {
  head -c 24 /dev/urandom | base64 | tr '+/' '-_'
}
[ -s "$folder/laptop" ] || printf 'sk-%s\n' "$(random)" >"$folder/laptop"
[ -s "$folder/lookup_order" ] || printf 'whsec_%s\n' "$(random)" >"$folder/lookup_order"
# The containers' user is not yours. Whoever may read this folder may call the tool.
chmod 755 "$folder"
chmod 644 "$folder/laptop" "$folder/lookup_order"
