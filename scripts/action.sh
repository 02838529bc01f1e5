#!/usr/bin/env bash
# Runs a step of action.yml: downloads a release and verifies its checksum, then judges the command.
# All inputs are variables. RELEASES_URL can name a mirror of the releases.
set -euo pipefail

releases=${RELEASES_URL:-https://github.com/forgerun/forgerun/releases}
home=${RUNNER_TEMP:?}/forgerun
out=$RUNNER_TEMP/forgerun-verdict

main() {
  local version flags=(--seeds "${SEEDS:-1}") result=0 more=()
  version=$(find_version)
  fetch "$version"
  mkdir -p "$out"
  if [ -n "${TARGET:-}" ]; then flags+=(--target "$TARGET"); else install_stores; fi
  [ -z "${PROFILES:-}" ] || flags+=(--profiles "$PROFILES")
  [ -z "${API:-}" ] || flags+=(--api "$API")
  [ -z "${BASELINE:-}" ] || flags+=(--baseline "$BASELINE")
  read -ra more <<<"${FLAGS:-}"
  "$home/$version/forgerun" verdict "${flags[@]}" "${more[@]}" --junit "$out/verdict.xml" --html "$out/verdict.html" \
    --json-file "$out/verdict.json" -- bash -eo pipefail -c "${COMMAND:?the input command is empty}" || result=$?
  [ ! -s "$out/verdict.json" ] || sed -n 's/^  "verdict": "\(.*\)",$/verdict=\1/p' "$out/verdict.json" >>"${GITHUB_OUTPUT:-/dev/null}"
  return "$result"
}

# find_version prints the tag of the release. A branch or commit of the action stands for the latest release.
find_version() {
  local latest
  if [[ ${VERSION:-} =~ ^v?([0-9]+\.[0-9]+\.[0-9]+.*)$ ]]; then
    echo "v${BASH_REMATCH[1]}"
    return
  fi
  latest=$(curl -fsSL --retry 3 -o /dev/null -w '%{url_effective}' "$releases/latest")
  echo "${latest##*/}"
}

# fetch unpacks the release for this machine, unless an earlier step did.
fetch() {
  local version=$1 archive
  [ ! -x "$home/$version/forgerun" ] || return 0
  archive=forgerun_${version#v}_$(machine).tar.gz
  mkdir -p "$home/$version"
  cd "$home/$version"
  curl -fsSL --retry 3 -O "$releases/download/$version/$archive" -O "$releases/download/$version/checksums.txt"
  grep -F "  $archive" checksums.txt | check_sha256 || {
    echo "::error title=ForgeRun::The checksum of $archive is not the one in checksums.txt of $version."
    return 1
  }
  tar -xzf "$archive" --strip-components=1
  cd "$OLDPWD"
}

machine() {
  case "${RUNNER_OS:-$(uname -s)}" in
    Linux) printf linux_ ;;
    macOS | Darwin) printf darwin_ ;;
    *) echo "::error title=ForgeRun::This action runs on Linux and macOS." >&2 && return 1 ;;
  esac
  case "$(uname -m)" in
    aarch64 | arm64) echo arm64 ;;
    *) echo amd64 ;;
  esac
}

check_sha256() { if command -v sha256sum >/dev/null; then sha256sum --check --quiet -; else shasum -a 256 --check -; fi; }

# install_stores installs Postgres and Redis if they are missing, since the action starts its own ForgeRun.
install_stores() {
  local missing=()
  command -v redis-server >/dev/null || command -v valkey-server >/dev/null || missing+=(redis-server)
  compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || command -v postgres >/dev/null || missing+=(postgresql)
  [ "${#missing[@]}" -gt 0 ] || return 0
  if command -v apt-get >/dev/null; then
    { sudo apt-get update -q && sudo apt-get install -qy --no-install-recommends "${missing[@]}"; } >&2
  else
    brew install --quiet redis postgresql@17 >&2
  fi
}

main
