#!/usr/bin/env bash
# Runs all fuzz targets of the repository, one after another, each for the given time.
#
#   scripts/fuzz.sh [30s]
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
go=${GO:-go}
each=${1:-30s}

# "folder target", sorted; the folder is relative to the module's root.
targets=$(grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . |
  sed -E 's|^(.*)/[^/]+:func (Fuzz.*)$|\1 \2|' | sort)
[ -n "$targets" ] || { echo "no fuzz targets found" && exit 0; }

failed=0
while read -r folder target; do
  echo "== $folder $target, $each"
  "$go" test "$folder" -run '^$' -fuzz "^${target}\$" -fuzztime "$each" </dev/null || failed=1
done <<<"$targets"
exit "$failed"
