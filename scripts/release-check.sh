#!/usr/bin/env bash
# What can be told of a release before it is made, in seconds: the changelog has its text, and the
# last release's API document is kept under its version.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
fail() { echo "release-check: $*" >&2 && exit 1; }

version=$(sed -nE 's/^## \[([0-9]+\.[0-9]+\.[0-9]+)\].*/\1/p' CHANGELOG.md | head -n 1)
[ -n "$version" ] || fail "CHANGELOG.md has no released version"
scripts/release-notes.sh "$version" >/dev/null
grep -q "^\[$version\]: " CHANGELOG.md || fail "CHANGELOG.md has no link for $version"
[ -e "docs/releases/$version/openapi.yaml" ] || fail "docs/releases/$version/openapi.yaml is missing"
kept=$(find docs/releases -mindepth 1 -maxdepth 1 -type d | sort -V | tail -n 1)
[ "$kept" = "docs/releases/$version" ] || fail "$kept is newer than $version, the last version in CHANGELOG.md"
if git rev-parse -q --verify "refs/tags/v$version" >/dev/null; then
  git show "v$version:handlers/docs/openapi.yaml" | cmp -s - "docs/releases/$version/openapi.yaml" ||
    fail "docs/releases/$version/openapi.yaml differs from the document at the tag v$version"
else
  cmp -s handlers/docs/openapi.yaml "docs/releases/$version/openapi.yaml" ||
    fail "v$version is not tagged yet, and its API document is not that of docs/releases/$version: copy handlers/docs/openapi.yaml"
fi
echo "release-check: $version is in order"
