#!/usr/bin/env bash
# Draws two images from real runs. docs/images/verdict.svg shows the end of a verdict on a wrong client. In docs/images/survives.svg a
# job survives kill -9 of its worker, and a client is judged before and after it is fixed. The script needs Node and Python; the second
# image, which the argument "verdict" skips, also needs asciinema and port 8080.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
export PATH="$root/bin:$PATH" FORGERUN_TIME_SCALE=0.05 FORGERUN_URL=http://127.0.0.1:8080
shown() { printf '\033[32m$\033[0m %s\n' "$*" && sleep 0.5 && eval "$*"; }
if [ "${1:-}" = scenes ]; then
  shown forgerun jobs submit SUCCESS_SLOW --auto-retry | tee submitted
  id=$(grep -om 1 '[0-9a-f-]\{36\}' submitted)
  (sleep 2 && echo && shown pkill -9 -P "$(cat pid)" -f "'forgerun worker'") &
  shown forgerun jobs watch "$id"
  unset FORGERUN_URL FORGERUN_API_KEY FORGERUN_TIME_SCALE # verdict starts its own service
  for client in orders.py orders_fixed.py; do
    shown "forgerun verdict --profile overloaded -- python3 $client | grep -E 'FAIL|WARN|^PASSED'" || true # it exits with 1 for a wrong client
  done
  sleep 4 && echo # the picture shows the last frame for this time
  exit
fi
svg() { npx --yes svg-term-cli@2.1.1 --in "$1" --out "$root/docs/images/$2" --no-cursor --window --padding 12 "${@:3}"; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cp "$root"/examples/tutorial/*.py "$dir" && cd "$dir"
command='forgerun verdict --profile overloaded -- python3 orders.py'
env -u FORGERUN_URL script -qec "$command" /dev/null </dev/null >verdict || true # it exits with 1 for a wrong client
{ printf '\033[32m$\033[0m %s\r\n...\r\n' "$command" && sed -n '/ FAIL .*backoff/,$p' verdict; } |
  python3 -c 'import json, sys
lines = sys.stdin.buffer.read().decode().rstrip().split("\n")
print(json.dumps({"version": 2, "width": 140, "height": sum(1 + len(line) // 140 for line in lines)}))
print(json.dumps([1, "o", "\n".join(lines)]) + "\n" + json.dumps([2, "o", ""]))' >cast
svg cast verdict.svg --at 1500
[ "${1:-}" != verdict ] || exit 0
forgerun dev --chaos kill=24h >log 2>&1 & # one process for each role; no fault occurs by itself
echo $! >pid
trap 'kill "$(cat pid)"; wait; rm -rf "$dir"' EXIT
until FORGERUN_API_KEY=$(grep -om 1 'frk_[^ ]*' log); do kill -0 "$(cat pid)" && sleep 0.2; done
export FORGERUN_API_KEY
asciinema rec -q -i 4 --cols 132 --rows 40 -c "$root/scripts/picture.sh scenes" cast
svg cast survives.svg
