#!/usr/bin/env bash
# Builds the root file systems of both images with the steps of the Dockerfile, as root on Debian, without Docker. Then it runs the
# programs of the images in them: with the ENV, user and HEALTHCHECK of the image, as process 1, in a separate network.
#
#   scripts/image-trial.sh [FOLDER]
#
# The Dockerfile's own line builds forgerun, unless FOLDER contains it. "dev" is a fresh Debian in which the script runs the stage's
# RUN lines. The base of "roles" is distroless: the file system has the documented contents of gcr.io/distroless/static-debian12, from
# the same Debian packages, and is read-only.
#
# Needs debootstrap, curl, jq, python3, iproute2. BASE can name a folder that "debootstrap --variant=minbase bookworm" has filled.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/trial.sh

# stage NAME prints a stage of the Dockerfile, one line for each instruction.
stage() {
  sed -e ':a' -e '/\\$/{N;s/\\\n *//;ba}' Dockerfile | awk -v name="$1" '$1 == "FROM" {on = $NF == name} on && !/^#/'
}

# instruction STAGE NAME prints the arguments of an instruction of the stage.
instruction() { stage "$1" | sed -n "s/^$2 //p"; }

##### Build

# compile runs the RUN line of the stage "build" that compiles, with another folder in place of /out.
compile() {
  local line
  say "the programs, by the line of stage build"
  line=$(instruction build RUN | grep 'go build' | sed -E "s/--mount=[^ ]+ //g; s|-o /out/|-o $work/out/|")
  mkdir "$work/out"
  env VERSION=trial COMMIT= DATE= TARGETOS=linux TARGETARCH="$(go env GOARCH)" sh -e -c "$line"
}

# copy_programs STAGE does what the COPY line of the stage does.
copy_programs() {
  local words program
  read -ra words <<<"$(instruction "$1" COPY)"
  [ "${words[0]}" = --from=build ] || fail "stage $1 copies from elsewhere: ${words[*]}"
  for program in "${words[@]:1:${#words[@]}-2}"; do
    install -D -m 755 "$work/out/$(basename "$program")" -t "$work/$1${words[-1]}"
  done
}

build_dev() {
  say "a fresh Debian, and the steps of stage dev"
  if [ -n "${BASE:-}" ]; then
    cp -a "$BASE" "$work/dev"
  else
    debootstrap --variant=minbase bookworm "$work/dev" "${MIRROR:-http://deb.debian.org/debian}" >"$work/debootstrap.log" ||
      fail "$(tail -n 5 "$work/debootstrap.log")"
  fi
  cp /etc/resolv.conf "$work/dev/etc/"
  ! ls /etc/apt/apt.conf.d/*proxy* >/dev/null 2>&1 || cp /etc/apt/apt.conf.d/*proxy* "$work/dev/etc/apt/apt.conf.d/"
  instruction dev RUN >"$work/dev/steps"
  DEBIAN_FRONTEND=noninteractive chroot "$work/dev" sh -e /steps >"$work/steps.log" 2>&1 || fail "$(tail -n 5 "$work/steps.log")"
  copy_programs dev
}

build_roles() {
  local package root=$work/roles
  say "the files of distroless/static, and the steps of stage roles"
  mkdir -p "$work/packages" "$root"/{etc/ssl/certs,home/nonroot,proc,tmp,usr/local/bin}
  (cd "$work/packages" && apt-get download -q base-files ca-certificates netbase tzdata >/dev/null 2>&1)
  for package in "$work"/packages/*.deb; do dpkg-deb -x "$package" "$root"; done
  rm -rf "${root:?}"/{bin,sbin,usr/bin,usr/sbin,usr/share/doc,etc/update-motd.d} # distroless omits these files of the packages
  find "$root/usr/share/ca-certificates" -name '*.crt' -exec cat {} + >"$root/etc/ssl/certs/ca-certificates.crt"
  printf '%s\n' root:x:0:0:root:/root:/sbin/nologin nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin >"$root/etc/passwd"
  printf '%s\n' root:x:0: nonroot:x:65532: >"$root/etc/group"
  copy_programs roles
  ! find "$root" -type f -perm /111 ! -path "$root/usr/local/bin/*" | grep . || fail "it has other programs"
}

##### Run, in separate namespaces

# enter STAGE VARIABLE... prepares start and health: it sets the stage's ENV and user.
enter() {
  local environment user=65532:65532 folder=(/usr/local/bin/forgerun)
  mapfile -t environment < <(instruction "$1" ENV | tr -s ' ' '\n')
  [ "$1" = roles ] || { user=10001:10001 && folder=(/usr/bin/env -C "$(instruction "$1" WORKDIR)" /usr/local/bin/forgerun); }
  root=$work/$1 check=$(instruction "$1" HEALTHCHECK | sed 's/.*CMD //')
  run=(env -i PATH=/usr/local/bin:/usr/bin:/bin "${environment[@]}" "${@:2}" "$(command -v chroot)" --userspec="$user" "$root" "${folder[@]}")
}

# start NAME COMMAND... starts the command as process 1 of a namespace: "first". "outer" waits for it.
start() {
  name=$1
  shift
  unshare --pid --fork --kill-child=KILL --mount-proc="$root/proc" "${run[@]}" "$@" >"$work/$name.out" 2>"$work/$name.log" &
  outer=$!
  await pgrep -P "$outer"
  first=$(pgrep -P "$outer" | head -n 1)
}

# finish NAME COMMAND... runs a command that ends by itself.
finish() {
  unshare --pid --fork --kill-child=KILL --mount-proc="$root/proc" "${run[@]}" "${@:2}" >"$work/$1.out" 2>"$work/$1.log" ||
    fail "$1: $(tail -n 3 "$work/$1.log")"
}

# health runs the stage's HEALTHCHECK in the namespaces of process 1.
health() {
  local words
  mapfile -t words < <(jq -r '.[]' <<<"$check")
  [ "${words[0]}" = /usr/local/bin/forgerun ] || fail "the health check is another program: ${words[*]}"
  nsenter --target "$first" --pid --mount "${run[@]}" "${words[@]:1}"
}

healthy() {
  await health
  echo "ok: $name is healthy"
}

# stop sends SIGTERM to process 1, like docker stop.
stop() {
  local code=0
  kill -TERM "$first"
  wait "$outer" || code=$?
  [ "$code" = 0 ] || fail "$name ended with $code: $(tail -n 3 "$work/$name.log")"
  ! pgrep -u 10001 || fail "$name has left a process behind"
  echo "ok: $name stopped by SIGTERM"
}

outside=http://10.9.0.1 # not loopback

run_dev() {
  local key token job
  say "forgerun-dev"
  enter dev
  start dev dev
  healthy
  await grep -q 'Stop with' "$work/dev.out"
  cat "$work/dev.out"
  key=$(grep -o 'frk_[A-Za-z0-9_]*' "$work/dev.out" | head -n 1)
  token=$(cat "$work/dev/data/admin.token")
  ! grep -q '\[::\]\|0\.0\.0\.0' "$work/dev.out" || fail "addresses are printed that nobody reaches"
  grep -qF "$token" "$work/dev.out" || fail "the operator's token is not printed"
  job=$(run_job "$outside:8080" "$key")
  echo "ok: job $job succeeded, asked for from $outside"
  expect 401 curl -s -o /dev/null -w '%{http_code}' "$outside:8081/admin/v1/overview"
  expect 200 curl -s -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $token" "$outside:8081/admin/v1/overview"
  stop

  say "forgerun-dev: the same volume again, and after a kill"
  start dev-again dev
  healthy
  expect SUCCEEDED curl -fsS "$outside:8080/v1/jobs/$job" -H "Authorization: Bearer $key"
  kill -KILL "$first"
  wait "$outer" || true
  start dev-killed dev
  healthy
  expect SUCCEEDED curl -fsS "$outside:8080/v1/jobs/$job" -H "Authorization: Bearer $key"
  stop
}

run_proxy() {
  say "proxy"
  echo "10.9.0.1 host.docker.internal" >>"$work/dev/etc/hosts" # this is what --add-host does
  python3 -m http.server --bind 10.9.0.1 --directory "$work/roles/etc" 3000 >"$work/target.log" 2>&1 &
  await curl -fsS http://10.9.0.1:3000/passwd
  enter dev
  start proxy proxy --listen 0.0.0.0:9000 --target http://host.docker.internal:3000
  healthy
  expect "http://127.0.0.1:9000 is before http://host.docker.internal:3000" cat "$work/proxy.out"
  expect nonroot curl -fsS "$outside:9000/passwd"
  expect '"profile"' curl -fsS --json '{"profile": "overloaded"}' "$outside:9000/-/forgerun/v1/testbed/sessions"
  stop
  finish help jobs --help
  expect "forgerun jobs submit" cat "$work/help.out"
}

run_roles() {
  local database redis client token key role stores
  say "forgerun: the roles, read-only, on the stores of a dev"
  enter dev FORGERUN_HTTP_ADDR=127.0.0.1:18080 FORGERUN_ADMIN_ADDR=127.0.0.1:18081
  start stores dev
  healthy
  stores=$outer
  database=$(jq -r .database_url "$work/dev/data/dev.json") redis=$(jq -r .redis_url "$work/dev/data/dev.json")
  chroot "$work/dev" psql -q "$database" -c 'CREATE DATABASE roles'
  mount --bind "$work/roles" "$work/roles"
  mount -o remount,bind,ro "$work/roles"
  mount -t tmpfs tmpfs "$work/roles/tmp"
  token=$(openssl rand -hex 32)
  local settings=(FORGERUN_DATABASE_URL="${database/\/forgerun\?/\/roles?}" FORGERUN_REDIS_URL="${redis%/0}/1" FORGERUN_ADMIN_TOKEN="$token"
    FORGERUN_MASTER_KEY="$(openssl rand -base64 32)" FORGERUN_PUBLIC_URL=http://127.0.0.1:8080)
  enter roles "${settings[@]}"
  finish migrate migrate
  expect "The schema is at version" cat "$work/migrate.out"
  start api api
  healthy
  local port=8081 # the three processes share one loopback, like in a container
  for role in worker deliverer; do
    port=$((port + 1))
    enter roles "${settings[@]}" FORGERUN_ADMIN_ADDR=127.0.0.1:$port
    start "$role" "$role"
    healthy
  done
  client=$(curl -fsS -X POST "$outside:8080/v1/clients" -H "Authorization: Bearer $token" | jq -er .client_id)
  key=$(curl -fsS -X POST "$outside:8080/v1/clients/$client/keys" -H "Authorization: Bearer $token" | jq -er .api_key)
  echo "ok: job $(run_job "$outside:8080" "$key") succeeded, asked for from $outside"
  expect "Failed to connect" curl -sS "$outside:8081/readyz"
  kill -KILL "$stores"
}

if [ -n "${IMAGE_TRIAL:-}" ]; then
  work=$IMAGE_TRIAL
  ip link set lo up
  ip link add outside type bridge
  ip address add 10.9.0.1/24 dev outside
  ip link set outside up
  run_dev
  run_proxy
  run_roles
  say "all is well"
  exit
fi
work=$(mktemp -d /var/tmp/forgerun-images-XXXXXX)
chmod 755 "$work"
trap 'rm -rf "$work"' EXIT
if [ -n "${1:-}" ]; then mkdir "$work/out" && cp "$1/forgerun" "$work/out/"; else compile; fi
build_roles
build_dev
IMAGE_TRIAL=$work unshare --net --mount --pid --fork --kill-child=KILL --mount-proc "$0"
