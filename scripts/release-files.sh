#!/usr/bin/env bash
# Makes the files that a release has besides the programs: shell completions and man pages. The
# programs print them. They go to the folders completions and man below the given one.
#
#   scripts/release-files.sh build/release
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=${1:?usage: scripts/release-files.sh FOLDER}

rm -rf "$out"
mkdir -p "$out/completions" "$out/man"
tool=$(mktemp -d)
trap 'rm -rf "$tool"' EXIT
# Build for this machine, even if the release is for another platform.
GOOS='' GOARCH='' CGO_ENABLED=0 go build -buildvcs=false -o "$tool/forgerun" ./cmd/forgerun

for shell in bash zsh fish; do
  "$tool/forgerun" completion "$shell" >"$out/completions/forgerun.$shell"
  [ -s "$out/completions/forgerun.$shell" ] || { echo "forgerun completion $shell prints nothing" >&2 && exit 1; }
done
"$tool/forgerun" man "$out/man"
gzip --best --no-name "$out"/man/*.1
