#!/usr/bin/env bash
# Runs the profile ha of docker-compose.yml without Docker, as root on Debian. Each container is a copy-on-write view of this
# machine with its own network. It runs the command and the health checks from the file, with the files that the file mounts.
# Then the script kills a process of each kind. It does not use the images: Postgres, Redis and Caddy are those of this machine.
#
#   scripts/ha-trial.sh PROGRAM
#
# Needs postgresql, redis-server, caddy, curl, wget, jq, iproute2, python3-yaml.
set -euo pipefail

if [ -z "${HA_TRIAL:-}" ]; then # run again in new namespaces for networks, mounts and processes, which end with the script
  HA_TRIAL=$(realpath "${1:?usage: scripts/ha-trial.sh PROGRAM}")
  export HA_TRIAL
  exec unshare --net --mount --pid --fork --kill-child=KILL --mount-proc "$0"
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=/mnt # only in this mount namespace
mount -t tmpfs tmpfs $work
mount -t tmpfs tmpfs /run
. scripts/trial.sh
fail() {
  echo "ha-trial: $*" >&2
  tail -n 5 $work/*.log >&2
  exit 1
}

# compose NAME KEY prints a list of a service, one element on each line.
compose() {
  python3 -c 'import sys, yaml
value = yaml.safe_load(open("docker-compose.yml"))["services"][sys.argv[1]]
for key in sys.argv[2].split("."): value = value[key]
print("\n".join(value))' "$1" "$2"
}

number=1
ip link set lo up
ip link add bridge type bridge
ip address add 10.9.0.1/24 dev bridge
ip link set bridge up

# container NAME ALIAS... creates a container, which the others know by these names.
container() {
  local name=$1 root=$work/$1/root
  number=$((number + 1))
  mkdir -p "$work/$name"/{upper,work} "$root"
  mount -t overlay overlay -o "lowerdir=/,upperdir=$work/$name/upper,workdir=$work/$name/work" "$root"
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  mkdir -p "$root/etc/forgerun" "$root/etc/caddy" "$root/data" "$root/tmp" "$root/run/postgresql"
  chmod 1777 "$root/data" "$root/tmp" "$root/run/postgresql"
  cp deploy/compose/{pg_hba.conf,standby.sh,sentinel.conf} "$root/etc/forgerun"
  cp deploy/compose/Caddyfile "$root/etc/caddy"
  touch "$root/etc/hosts" && mount --bind $work/hosts "$root/etc/hosts"
  ip netns add "$name"
  ip link add "v$number" type veth peer name eth0 netns "$name"
  ip link set "v$number" master bridge up
  ip -n "$name" address add "10.9.0.$number/24" dev eth0
  ip -n "$name" link set eth0 up
  ip -n "$name" link set lo up
  printf '10.9.0.%s %s\n' "$number" "$*" >>$work/hosts
}
echo 127.0.0.1 localhost >$work/hosts

# inside NAME USER COMMAND... runs a command in a container.
inside() {
  local name=$1 user=$2
  shift 2
  ip netns exec "$name" chroot --userspec="$user" "$work/$name/root" /usr/bin/env -C /data "${environment[@]}" "$@"
}

# start NAME USER COMMAND... starts the main process of a container.
start() {
  inside "$@" >>"$work/$1.log" 2>&1 &
}

# lose NAME kills all processes of a container.
lose() {
  ip netns pids "$1" | xargs kill -KILL 2>/dev/null || true # some processes end when an earlier one is killed
}

# healthy NAME SERVICE waits until the health check of the service succeeds in the container.
healthy() {
  local test
  mapfile -t test < <(compose "$2" healthcheck.test | tail -n +2)
  await inside "$1" root "${test[@]}"
  echo "ok: $1 is healthy"
}

POSTGRES_PASSWORD=$(openssl rand -hex 32)
token=$(openssl rand -hex 32)
FORGERUN_MASTER_KEY=$(openssl rand -base64 32)
postgres=$(echo /usr/lib/postgresql/*/bin)
environment=(PATH="$postgres:/usr/local/bin:/usr/bin:/bin")

say "stores"
container postgres
container postgres-standby
container redis
container redis-replica
for n in 1 2 3; do container "sentinel$n" sentinel; done
environment+=(PGDATA=/var/lib/postgresql/data)
install -d -o postgres -m 0700 $work/postgres/root/var/lib/postgresql/data $work/postgres-standby/root/var/lib/postgresql/data
(umask 077 && echo "$POSTGRES_PASSWORD" >$work/postgres/root/data/password && chown postgres $work/postgres/root/data/password)
# These steps do what the entrypoint of the image does with a new volume.
inside postgres postgres initdb --username=forgerun --pwfile=/data/password --auth=scram-sha-256 >/dev/null
echo "listen_addresses = '*'" >>$work/postgres/root/var/lib/postgresql/data/postgresql.conf
mapfile -t command < <(compose postgres command)
start postgres postgres "${command[@]}"
healthy postgres postgres
inside postgres postgres createdb --username=forgerun forgerun
environment+=(PGDATA=/var/lib/postgresql/data/standby PGHOST=postgres PGUSER=forgerun PGPASSWORD="$POSTGRES_PASSWORD")
mapfile -t command < <(compose postgres-standby command)
start postgres-standby postgres "${command[@]}"
healthy postgres-standby postgres-standby
environment=(PATH=/usr/local/bin:/usr/bin:/bin)
for one in redis redis-replica; do
  mapfile -t command < <(compose $one command)
  start $one redis "${command[@]}" --protected-mode no --dir /data # the image has the same setting
  healthy $one $one
done
for n in 1 2 3; do
  mapfile -t command < <(compose sentinel command)
  [ -x /usr/bin/redis-sentinel ] || ln -s redis-server "$work/sentinel$n/root/usr/bin/redis-sentinel"
  start "sentinel$n" redis "${command[@]}"
done
for n in 1 2 3; do healthy "sentinel$n" sentinel; done

say "roles, with the variables of .env.example for ha"
eval "$(sed -n '/^# With --profile ha/,/^$/s/^#\([A-Z_]*\)=\(.*\)$/\1="\2"/p' .env.example)"
environment+=(FORGERUN_DATABASE_URL="$FORGERUN_DATABASE_URL" FORGERUN_REDIS_URL="$FORGERUN_REDIS_URL"
  FORGERUN_PUBLIC_URL="$FORGERUN_PUBLIC_URL" FORGERUN_TRUSTED_PROXIES="$FORGERUN_TRUSTED_PROXIES" FORGERUN_ADMIN_TOKEN="$token"
  FORGERUN_MASTER_KEY="$FORGERUN_MASTER_KEY" FORGERUN_HTTP_ADDR=0.0.0.0:8080 FORGERUN_ADMIN_ADDR=0.0.0.0:8081)
container api-1 api
container api-2 api
roles=(api-1:api api-2:api)
for ((n = 1; n <= WORKERS; n++)); do roles+=("worker-$n:worker"); done
for ((n = 1; n <= DELIVERERS; n++)); do roles+=("deliverer-$n:deliverer"); done
for one in "${roles[@]}"; do
  name=${one%:*}
  [ -d "$work/$name" ] || container "$name"
  cp "$HA_TRIAL" "$work/$name/root/usr/local/bin/forgerun"
  [ "$name" != api-1 ] || inside api-1 65532:65532 forgerun "$(compose migrate command)"
  start "$name" 65532:65532 forgerun "$(compose "${one#*:}" command)"
done
container balancer
start balancer root caddy run --adapter caddyfile --config /etc/caddy/Caddyfile
for one in "${roles[@]}"; do await inside "${one%:*}" 65532:65532 forgerun healthcheck --url http://127.0.0.1:8081/readyz; done
healthy balancer balancer

at=http://10.9.0.$number:8090
operator=(-H "Authorization: Bearer $token")
client=$(curl -fsS -X POST "$at/v1/clients" "${operator[@]}" | jq -er .client_id)
key=$(curl -fsS -X POST "$at/v1/clients/$client/keys" "${operator[@]}" | jq -er .api_key)
auth=(-H "Authorization: Bearer $key" -H 'Content-Type: application/json')

submit() { curl -fsS "$at/v1/jobs" "${auth[@]}" -d "$1" | jq -er .job_id; }
succeeded() { curl -fsS -m 10 "$at/v1/jobs/$1" "${auth[@]}" | jq -e '.state == "SUCCEEDED"'; }

# works AFTER waits until a job is accepted and succeeds.
works() {
  local i id=""
  for ((i = 0; i < 300; i++)); do
    id=$(submit '{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}' 2>/dev/null) && break
    sleep 0.2
  done
  [ -n "$id" ] || fail "no job is taken after $1"
  await succeeded "$id"
  echo "ok: after $1 job $id succeeded"
}

works "the start"
copied='SELECT pg_is_in_recovery() AND count(*) > 0 FROM jobs'
[ "$(inside postgres-standby postgres "$postgres/psql" -U forgerun -d forgerun -Atc "$copied")" = t ] ||
  fail "the standby has no copy"
later=$(submit "{\"type\":\"DEFERRED\",\"work_kind\":\"SUCCESS_FAST\",\"execution_at\":\"$(date -u -d '+1 hour' +%FT%TZ)\"}")
stream=$(curl -sN -m 5 "$at/v1/jobs/$later/events" "${auth[@]}" -H 'Accept: text/event-stream' || true)
[[ $stream == *"$later"* ]] || fail "the balancer holds a stream back: $stream"
echo "ok: events of a job come while its stream is open"

say "losses"
for name in api-1 worker-1 deliverer-1; do lose $name; done
works "the loss of one api, worker and deliverer"
lose redis
works "the loss of the first Redis"
lose postgres
environment+=(PGDATA=/var/lib/postgresql/data/standby)
inside postgres-standby postgres "$postgres/pg_ctl" promote
works "the promotion of the standby"
curl -fsS "$at/v1/jobs/$later" "${auth[@]}" | jq -e '.state' >/dev/null || fail "a job of before is lost"
say "all is well"
