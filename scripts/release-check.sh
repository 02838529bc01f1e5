#!/usr/bin/env bash
# Checks the changelog before a release: it has text and a link for its last version.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
fail() { echo "release-check: $*" >&2 && exit 1; }

version=$(sed -nE 's/^## \[([0-9]+\.[0-9]+\.[0-9]+)\].*/\1/p' CHANGELOG.md | head -n 1)
[ -n "$version" ] || fail "CHANGELOG.md has no released version"
scripts/release-notes.sh "$version" >/dev/null
grep -q "^\[$version\]: " CHANGELOG.md || fail "CHANGELOG.md has no link for $version"
echo "release-check: $version is in order"
