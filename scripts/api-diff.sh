#!/usr/bin/env bash
# Compares the API document with that of the last release: a change that breaks clients fails.
# docs/reference/versions.md says what may change; tools/oasdiff/severity.txt, where that differs from what
# oasdiff assumes. What is meant to break goes into docs/releases/VERSION/accepted.txt, as oasdiff
# prints it, below a line "# WORDS", where WORDS stand in the line of CHANGELOG.md about it.
#
#   scripts/api-diff.sh [DOCUMENT]
#   scripts/api-diff.sh --prove       it fails for a document that breaks clients, and for no other
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
last=$(find docs/releases -mindepth 1 -maxdepth 1 -type d | sort -V | tail -n 1)
[ -n "$last" ] || { echo "docs/releases has no release to compare with" >&2 && exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
released=$last/openapi.yaml

breaking() {
  local options=(--fail-on ERR --severity-levels tools/oasdiff/severity.txt)
  [ ! -e "$last/accepted.txt" ] || options+=(--err-ignore "$last/accepted.txt")
  "${GO:-go}" tool -modfile=tools/oasdiff/go.mod oasdiff breaking "${options[@]}" "$released" "$1"
}

# announced FILE CHANGELOG wants words of the changelog above each line that is accepted.
announced() {
  local line words=""
  while IFS= read -r line; do
    case $line in
      "# "*)
        words=${line#\# }
        grep -qF -- "$words" "$2" || { echo "CHANGELOG.md has no line with \"$words\", as $1 says" >&2 && return 1; }
        ;;
      ?*) [ -n "$words" ] || { echo "$1: which line of CHANGELOG.md is about: $line" >&2 && return 1; } ;;
    esac
  done <"$1"
}

compare() {
  echo "comparing $1 with $last/openapi.yaml"
  breaking "$1" || {
    echo "the API breaks clients of $last (docs/reference/versions.md). If it is meant to, write a line for each change into" >&2
    echo "CHANGELOG.md, and into $last/accepted.txt \"# \" and words of that line, and below it the change as it is told above" >&2
    exit 1
  }
  # What was never released breaks nobody.
  if [ -e "$last/accepted.txt" ] && git rev-parse -q --verify "refs/tags/v${last##*/}" >/dev/null; then
    awk '/^## / {n++} n < 2' CHANGELOG.md >"$work/changelog"
    announced "$last/accepted.txt" "$work/changelog"
  fi
}

# edit NAME SED-SCRIPT makes a document that differs from the released one.
edit() {
  sed "$2" "$released" >"$work/$1.yaml"
  ! cmp -s "$released" "$work/$1.yaml" || { echo "the document for \"$1\" is the released one" >&2 && exit 1; }
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
    ! breaking "$work/$name.yaml" >"$work/out" 2>&1 || { echo "not noticed: $name" >&2 && exit 1; }
    grep -q '^error' "$work/out" || { cat "$work/out" >&2 && exit 1; }
    echo "noticed: $name"
  done
  for name in new-kind new-rule new-path; do
    breaking "$work/$name.yaml" >"$work/out" 2>&1 || { cat "$work/out" >&2 && exit 1; }
    echo "allowed: $name"
  done
  printf '%s\n' '- Removed: the colour of jobs.' >"$work/changelog"
  printf '%s\n' '# the colour of jobs' 'GET /v1/jobs removed the colour' >"$work/announced"
  announced "$work/announced" "$work/changelog" && echo "allowed: accepted, with a line in the changelog"
  sed 1d "$work/announced" >"$work/untold"
  sed 1s/colour/taste/ "$work/announced" >"$work/elsewhere"
  for name in untold elsewhere; do
    ! announced "$work/$name" "$work/changelog" 2>"$work/out" || { echo "not noticed: $name" >&2 && exit 1; }
    echo "noticed: $(cat "$work/out")"
  done
}

case "${1:-}" in
  --prove) prove ;;
  *) compare "${1:-handlers/docs/openapi.yaml}" ;;
esac
