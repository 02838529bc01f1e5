#!/usr/bin/env bash
# Prints the section of CHANGELOG.md about a version, which is the text of its release.
#
#   scripts/release-notes.sh v0.1.0
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=${1:?usage: scripts/release-notes.sh VERSION}
awk -v heading="## [${version#v}]" '
  index($0, "## [") == 1 {inside = index($0, heading) == 1; next}
  inside && !/^\[.*\]: / {print; if (NF) lines++}
  END {if (!lines) {print "CHANGELOG.md has no section " heading > "/dev/stderr"; exit 1}}
' CHANGELOG.md
