#!/usr/bin/env bash
# Compares the API document with the one of the last release tag, and fails if a change breaks clients.
# docs/reference/api.md lists the changes that are allowed. tools/oasdiff/severity.txt has the rules that
# differ from oasdiff's defaults. To break clients on purpose, copy the lines that oasdiff prints into
# tools/oasdiff/accepted.txt and add a line to CHANGELOG.md. Delete accepted.txt after the release.
#
#   scripts/api-diff.sh [DOCUMENT]
#   scripts/api-diff.sh --prove       checks the rules: documents that break clients fail, others pass
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
document=handlers/docs/openapi.yaml
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# breaking OLD NEW [OPTION...] prints the changes that break clients and fails if there are any.
breaking() {
  "${GO:-go}" tool -modfile=tools/oasdiff/go.mod oasdiff breaking --fail-on ERR \
    --severity-levels tools/oasdiff/severity.txt "${@:3}" "$1" "$2"
}

compare() {
  local tag accepted=()
  tag=$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null) || {
    echo "api-diff: no release tag yet, nothing to compare with" && return
  }
  git show "$tag:$document" >"$work/released.yaml" 2>/dev/null || {
    echo "api-diff: $tag has no $document, nothing to compare with" && return
  }
  [ ! -e tools/oasdiff/accepted.txt ] || accepted=(--err-ignore tools/oasdiff/accepted.txt)
  echo "comparing $1 with $tag"
  breaking "$work/released.yaml" "$1" "${accepted[@]}" || {
    echo "$1 breaks clients of $tag (docs/reference/api.md). If this is intended, add a line to CHANGELOG.md and" >&2
    echo "copy the changes above into tools/oasdiff/accepted.txt." >&2
    exit 1
  }
}

# edit NAME SED-SCRIPT writes a changed copy of the current document.
edit() {
  sed "$2" "$document" >"$work/$1.yaml"
  ! cmp -s "$document" "$work/$1.yaml" || { echo "the edit \"$1\" changes nothing in $document" >&2 && exit 1; }
}

prove() {
  local name
  edit removed-path 's|^  /v1/bulk/{id}/abort:|  /v1/bulk/{id}/stop:|'
  edit removed-member 's|^            waiting: {|            waits_for: {|'
  edit removed-parameter 's|name: created_after|name: created_since|'
  edit new-kind 's|enum: \[SUCCESS_FAST, SUCCESS_NORMAL|enum: [NEW_KIND, SUCCESS_FAST, SUCCESS_NORMAL|'
  edit new-rule 's|enum: \[retry-after, list-polling|enum: [retry-after, new-rule, list-polling|'
  edit new-path 's|^paths:|paths:\n  /v1/new:\n    get:\n      operationId: getNew\n      responses:\n        "204": {description: Nothing.}|'
  for name in removed-path removed-member removed-parameter; do
    ! breaking "$document" "$work/$name.yaml" >"$work/out" 2>&1 || { echo "not noticed: $name" >&2 && exit 1; }
    grep -q '^error' "$work/out" || { cat "$work/out" >&2 && exit 1; }
    echo "noticed: $name"
  done
  for name in new-kind new-rule new-path; do
    breaking "$document" "$work/$name.yaml" >"$work/out" 2>&1 || { cat "$work/out" >&2 && exit 1; }
    echo "allowed: $name"
  done
}

case "${1:-}" in
  --prove) prove ;;
  *) compare "${1:-$document}" ;;
esac
