# A part of scripts/release-trial.sh: runs the commands of docs/how-to/install.md. The local build takes the place of the release.
# shellcheck shell=bash disable=SC2154 # release-trial.sh sets dist, work and version

# block HEADING N prints the Nth block of commands below a heading of the page, with the local build in place of the release.
block() {
  awk -v heading="## $1" -v wanted="$2" '/^## / {inside = $0 == heading; n = 0}
    inside && /^```/ {open = !open; n += open; next}
    inside && open && n == wanted' docs/how-to/install.md |
    sed "s|https://github.com/forgerun/forgerun/releases/download/vVERSION|http://127.0.0.1:18088|; s|VERSION|$version|g"
}

# run_block HEADING N [SED-SCRIPT] runs a block in a new folder.
run_block() {
  local commands
  commands=$(block "$1" "$2" | sed "${3:-}")
  [ -n "$commands" ] || fail "the page has no block $2 below $1"
  mkdir -p "$work/download"
  (cd "$work/download" && eval "$commands")
}

# serve serves the files of the release on loopback, where block looks for them.
serve() {
  python3 -m http.server --bind 127.0.0.1 --directory "$dist" 18088 >"$work/release.log" 2>&1 &
  pids+=($!)
  await curl -fsS http://127.0.0.1:18088/checksums.txt
}

# These functions replace commands of the page that ask the user something. They run as root.
sudo() {
  if [ "$1" = -u ]; then
    printf 'secret\nsecret\n' | setsid --wait runuser -u "$2" -- "${@:3}"
  else
    "$@"
  fi
}
apt-get() { command apt-get -y -q "$@"; }
sudoedit() {
  sed -i -e "s|^FORGERUN_DATABASE_URL=.*|FORGERUN_DATABASE_URL=postgres://forgerun:secret@127.0.0.1:$PGPORT/forgerun|" \
    -e "s|^FORGERUN_MASTER_KEY=.*|FORGERUN_MASTER_KEY=$(openssl rand -base64 32)|" \
    -e "s|^FORGERUN_ADMIN_TOKEN=.*|FORGERUN_ADMIN_TOKEN=$(openssl rand -hex 32)|" \
    -e "s|^FORGERUN_REDIS_URL=.*|FORGERUN_REDIS_URL=redis://127.0.0.1:18099/0|" \
    -e "s|^FORGERUN_HTTP_ADDR=.*|FORGERUN_HTTP_ADDR=127.0.0.1:18080|" "$1"
}

now() { date +%s%3N; }

first_job() {
  local began ready ended stores
  say "first_job: the archive"
  serve
  run_block Archive 1 "s|/usr/local/bin|-D -t $work/bin|"
  began=$(now)
  FORGERUN_DATA_DIR=$work/first FORGERUN_HTTP_ADDR=127.0.0.1:18090 FORGERUN_ADMIN_ADDR=127.0.0.1:18091 \
    "$work/bin/forgerun" dev >"$work/first.out" 2>&1 &
  pids+=($!)
  await test -s "$work/first/dev.json"
  ready=$(now)
  run_job http://127.0.0.1:18090 "$(jq -r .api_key "$work/first/dev.json")"
  ended=$(now)
  # The time to the line about Postgres includes initdb. Redis has its own line.
  stores=$(jq -s --argjson began "$began" 'map(select(.msg == "postgres is ready" or .msg == "redis is ready"))
    | (.[0].time | sub("\\.(?<ms>...).*"; "Z") | fromdate * 1000) + (.[0].time | capture("\\.(?<ms>...)").ms | tonumber) - $began
    + .[1].took / 1e6 | round' "$work/first/dev.log")
  echo "ok: ready after $((ready - began)) ms, the job's end after $((ended - began)) ms, of which $stores ms for Postgres and Redis"
}

# start_cluster starts a Postgres for the createuser and createdb commands of the page, which find it by PGHOST and PGPORT.
start_cluster() {
  local bin
  bin=$(find /usr/lib/postgresql/*/bin -maxdepth 0 | tail -n 1)
  export PGHOST=$work/cluster PGPORT=18432
  install -d -o postgres "$PGHOST"
  runuser -u postgres -- "$bin/initdb" -D "$PGHOST/data" --auth-host=scram-sha-256 >"$work/cluster.log"
  runuser -u postgres -- "$bin/postgres" -D "$PGHOST/data" -c listen_addresses=127.0.0.1 -c unix_socket_directories="$PGHOST" >>"$work/cluster.log" 2>&1 &
  pids+=($!)
  await runuser -u postgres -- psql -c 'SELECT 1'
}

# unit NAME runs a unit as far as possible without systemd as process 1: with its environment, its user and its commands.
unit() {
  local file=/lib/systemd/system/$1.service pre start run
  mapfile -t run < <(sed -n 's/^Environment=//p' "$file" | sed s/%i/1/ && grep -hE '^[A-Z_]+=' /etc/forgerun/forgerun.env)
  read -ra pre < <(sed -n 's/^ExecStartPre=-//p' "$file") || true
  read -ra start < <(sed -n 's/^ExecStart=//p' "$file")
  run=(setpriv --reuid=forgerun --regid=forgerun --clear-groups env -i "${run[@]}")
  [ ${#pre[@]} = 0 ] || "${run[@]}" "${pre[@]}" || echo "(the doctor ends with $?, and the unit goes on)"
  exec "${run[@]}" "${start[@]}"
}

units() {
  local name started=() token client key
  say "package: the units' commands, without Redis at first"
  (unit forgerun-migrate)
  (unit forgerun-api) >"$work/api.out" 2>&1 &
  started+=($!) && pids+=($!)
  await curl -fsS http://127.0.0.1:18080/readyz
  expect "FAIL  Redis" cat "$work/api.out"
  token=$(sed -n 's/^FORGERUN_ADMIN_TOKEN=//p' /etc/forgerun/forgerun.env)
  client=$(curl -fsS -X POST http://127.0.0.1:18080/v1/clients -H "Authorization: Bearer $token" | jq -er .client_id)
  key=$(curl -fsS -X POST "http://127.0.0.1:18080/v1/clients/$client/keys" -H "Authorization: Bearer $token" | jq -er .api_key)
  redis-server --port 18099 --bind 127.0.0.1 --save '' --dir "$work" >"$work/redis.log" &
  started+=($!) && pids+=($!)
  for name in deliverer worker@; do
    (unit "forgerun-$name") >"$work/$name.out" 2>&1 &
    started+=($!) && pids+=($!)
  done
  echo "ok: job $(run_job http://127.0.0.1:18080 "$key") succeeded"
  expect "doctor ends with 1" cat "$work/api.out"
  kill "${started[@]}"
  wait "${started[@]}" || true
}

# go_install serves the last commit as a release of the repository that the page names.
go_install() {
  local tag
  tag=v0.999.$(date +%s)
  say "go_install: $tag"
  git clone -q . "$work/origin"
  git -C "$work/origin" tag "$tag"
  (
    export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.file://$work/origin.insteadOf" GIT_CONFIG_VALUE_0=https://github.com/forgerun/forgerun
    export GOPRIVATE=github.com/forgerun GOBIN=$work/gobin
    run_block Go 1
  )
  expect "forgerun $tag" "$work/gobin/forgerun" version
  chmod -R u+w "$(go env GOMODCACHE)/github.com/forgerun/forgerun@$tag"
  rm -rf "$(go env GOMODCACHE)/github.com/forgerun/forgerun@$tag"
}
