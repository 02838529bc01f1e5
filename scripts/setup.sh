#!/usr/bin/env bash
# Prepares a machine for ForgeRun. If nothing is missing, it prints nothing.
#
#   scripts/setup.sh run    to build and run: Go, make, Postgres and Redis servers
#   scripts/setup.sh dev    the same, but for servers that FORGERUN_DATABASE_URL
#                           and FORGERUN_REDIS_URL name
#   scripts/setup.sh test   to test as well: a C compiler, which -race needs, and
#                           libfaketime (Linux only), which sets the clock of a Postgres server
#   scripts/setup.sh ci     to test everything: Prometheus, which checks the rules
#                           and dashboards; Chromium, which opens the pages;
#                           Node, with the packages of tools/documents (which check
#                           the API's documents), clients/typescript, tools/site (which
#                           builds the site of docs) and examples/javascript;
#                           Python, with mypy and httpx for clients/python and pytest-xdist
#                           for examples/python; and PgBouncer. If one is missing, the
#                           tests that need it are skipped. Ubuntu has no package of
#                           Chromium: install it by hand.
#   scripts/setup.sh site   to build only the site of docs: make, Node and the packages
#                           of tools/site
#
# The script only checks Go. It installs the rest with apt-get on Debian and Ubuntu
# (through sudo unless root), and with Homebrew on macOS. It installs servers only as
# programs: it does not start, enable or configure them, and it does not touch servers
# that already run on the machine.
#
# It also calls itself as root: "scripts/setup.sh apt PACKAGE...".
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

main() {
  case "${1:-}" in
    run | dev | test | ci | site) prepare "$1" ;;
    apt) shift && install_as_root "$@" ;;
    *) die "usage: scripts/setup.sh run|dev|test|ci|site" ;;
  esac
}

prepare() {
  local missing
  [ "$1" = site ] || check_go
  missing=$(list_missing "$1")
  [ -z "$missing" ] || install_missing "$1" "$missing"
  if [ "$1" = ci ]; then
    install_node_packages tools/documents
    install_node_packages clients/typescript
    install_node_packages examples/javascript
  fi
  if [ "$1" = site ] || [ "$1" = ci ]; then install_node_packages tools/site; fi
}

install_missing() {
  local missing=$2
  case "$(uname -s)" in
    Darwin) install_with_brew "$missing" ;;
    *)
      command -v apt-get >/dev/null ||
        die "missing: $missing. On this system please install them by hand (package names differ), then run this again."
      install_with_apt "$missing"
      ;;
  esac
  hash -r
  missing=$(list_missing "$1")
  [ -z "$missing" ] || die "still missing after the installation: $missing"
}

# check_go compares the installed Go with the version that go.mod requires. Go 1.21
# or newer downloads that version by itself, unless GOTOOLCHAIN forbids it.
check_go() {
  local wanted found install="https://go.dev/doc/install"
  wanted=$(sed -n 's/^go \(1\.[0-9]*\).*/\1/p' "$root/go.mod")
  if ! command -v go >/dev/null; then
    if [ -x /usr/local/go/bin/go ]; then
      # shellcheck disable=SC2016 # the person who reads it expands it
      die 'Go is in /usr/local/go/bin but not on PATH. Run: export PATH="$PATH:/usr/local/go/bin"'
    fi
    die "Go is not installed. ForgeRun needs Go $wanted or newer: $install"
  fi
  found=$(cd "$root" && go env GOVERSION) ||
    die "ForgeRun needs Go $wanted or newer (go says why this one will not do, above): $install"
  if ! [[ $found =~ go1\.([0-9]+) ]] || [ "${BASH_REMATCH[1]}" -lt "${wanted#1.}" ]; then
    die "ForgeRun needs Go $wanted or newer; this is $found ($(command -v go)). See $install"
  fi
}

# install_node_packages installs exactly the packages that the lock file of a folder names,
# unless they are installed. It checks for a file that npm writes at the end.
install_node_packages() {
  local dir=$root/$1
  [ "$dir/node_modules/.package-lock.json" -nt "$dir/package-lock.json" ] && return
  say "running: npm ci (in $1)"
  (cd "$dir" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null) || die "npm ci failed (above)"
}

# list_missing prints which of these are missing: make postgres redis cc faketime prometheus
# chromium node python pytest pgbouncer.
list_missing() {
  local missing=() database="" redis=""
  if [ "$1" = dev ]; then
    database=${FORGERUN_DATABASE_URL:-} redis=${FORGERUN_REDIS_URL:-}
  fi
  command -v make >/dev/null || missing+=(make)
  if [ "$1" = site ]; then
    have_node || missing+=(node)
    echo "${missing[*]-}"
    return
  fi
  [ -n "$database" ] || { have_program postgres && have_program initdb; } || missing+=(postgres)
  [ -n "$redis" ] || have_program redis-server || have_program valkey-server || missing+=(redis)
  if { [ "$1" = test ] || [ "$1" = ci ]; } && ! can_compile; then missing+=(cc); fi
  if { [ "$1" = test ] || [ "$1" = ci ]; } && ! have_faketime; then missing+=(faketime); fi
  if [ "$1" = ci ]; then
    { command -v prometheus && command -v promtool; } >/dev/null || missing+=(prometheus)
    have_browser || missing+=(chromium)
    have_node || missing+=(node)
    { command -v python3 && command -v mypy && have_modules httpx && have_modules wheel,venv,ensurepip; } >/dev/null || missing+=(python)
    have_pytest || missing+=(pytest)
    have_program pgbouncer || missing+=(pgbouncer)
  fi
  echo "${missing[*]-}"
}

# have_program searches for a program in the same places as internal/stack.
have_program() {
  command -v "$1" >/dev/null && return
  local path
  for path in /usr/lib/postgresql/*/bin/"$1" /usr/pgsql-*/bin/"$1" \
    /{opt/homebrew,usr/local,home/linuxbrew/.linuxbrew}/opt/postgresql*/bin/"$1" \
    /Applications/Postgres.app/Contents/Versions/*/bin/"$1" \
    /{opt/homebrew,usr/local,home/linuxbrew/.linuxbrew}/bin/"$1" \
    /usr/bin/"$1" /usr/sbin/"$1"; do
    [ -x "$path" ] && return
  done
  return 1
}

# have_browser searches for the browser that the tests use.
have_browser() {
  command -v chromium-headless-shell || command -v chromium || command -v chromium-browser || command -v google-chrome
} >/dev/null

# have_faketime searches for the library in the place where the tests search. On systems other than Debian and Ubuntu, the tests
# that need it are skipped.
have_faketime() {
  ! command -v apt-get >/dev/null || compgen -G '/usr/lib/*/faketime/libfaketime.so.1' >/dev/null
}

# have_node checks whether Node has a version that the tools and libraries of this repository support.
have_node() {
  command -v npm >/dev/null && [ "$(node -p 'Number(process.versions.node.split(".")[0]) >= 18' 2>/dev/null)" = true ]
}

# have_pytest checks for the Python packages that run the suite of examples/python.
have_pytest() { have_modules pytest,xdist; }

# have_modules checks whether the Python that the tests use has the given modules. Homebrew has no packages of these modules.
have_modules() {
  [ "$(uname -s)" = Darwin ] || python3 -c "import $1" 2>/dev/null || /usr/bin/python3 -c "import $1" 2>/dev/null
}

# can_compile checks for a C compiler with its headers.
can_compile() {
  local cc
  read -ra cc <<<"$(go env CC)"
  command -v "${cc[0]:-}" >/dev/null && echo '#include <stdlib.h>' | "${cc[@]}" -E - >/dev/null 2>&1
}

install_with_brew() {
  local formulas=() item
  for item in $1; do
    case "$item" in
      make | cc) die "The command line tools are missing. Run: xcode-select --install" ;;
      postgres) formulas+=(postgresql@17) ;;
      redis) formulas+=(redis) ;;
      prometheus) formulas+=(prometheus) ;;
      chromium) formulas+=(chromium) ;; # a cask; it adds the program to PATH
      node) formulas+=(node) ;;
      python) formulas+=(python mypy) ;;
      pgbouncer) formulas+=(pgbouncer) ;;
    esac
  done
  command -v brew >/dev/null || die "Homebrew is missing (https://brew.sh). With it: brew install ${formulas[*]}"
  say "running: brew install ${formulas[*]}"
  HOMEBREW_NO_AUTO_UPDATE=1 brew install --quiet "${formulas[@]}" </dev/null
}

install_with_apt() {
  local packages=() item by_hand
  for item in $1; do
    case "$item" in
      make) packages+=(make) ;;
      postgres) packages+=(postgresql) ;;
      redis) packages+=(redis-server) ;;
      cc) packages+=(gcc libc6-dev) ;;
      faketime) packages+=(faketime) ;;
      prometheus) packages+=(prometheus) ;;
      node) packages+=(nodejs npm) ;;
      python) packages+=(python3 python3-cryptography python3-setuptools python3-wheel python3-venv python3-httpx mypy) ;;
      pytest) packages+=(python3-pytest-xdist) ;;
      pgbouncer) packages+=(pgbouncer) ;;
      chromium)
        if grep -qsx 'ID=ubuntu' /etc/os-release; then
          say "Ubuntu has no package of Chromium: please install it with snap, or Google Chrome, by hand"
        else
          packages+=(chromium-headless-shell)
        fi
        ;;
    esac
  done
  [ "${#packages[@]}" -gt 0 ] || return 0
  by_hand="apt-get update && apt-get install -y --no-install-recommends ${packages[*]}"
  if [ "$(id -u)" -eq 0 ]; then
    say "running: apt-get install ${packages[*]} (no server is started)"
    install_as_root "${packages[@]}"
  elif may_sudo; then
    say "running with sudo: apt-get install ${packages[*]} (no server is started)"
    sudo -- bash "$root/scripts/setup.sh" apt "${packages[@]}" ||
      die "the installation failed. An administrator can do it with: $by_hand"
  else
    die "missing packages, and no sudo to install them. Ask an administrator to run: $by_hand"
  fi
}

# may_sudo succeeds if sudo works without a password, or if a user can enter the password.
may_sudo() {
  command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }
}

policy=/usr/sbin/policy-rc.d
policy_aside=/usr/sbin/policy-rc.d.before-forgerun
clusters=/etc/postgresql-common/createcluster.d
no_cluster=$clusters/forgerun-setup.conf

# install_as_root installs packages in a subshell. hold_servers keeps the packages from
# creating and starting servers; the trap of the subshell undoes it.
install_as_root() (
  local log
  log=$(mktemp)
  trap 'rm -f "$log"; allow_servers' EXIT
  trap 'exit 130' INT TERM HUP
  hold_servers
  export DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1
  apt-get -q update </dev/null >"$log" 2>&1 ||
    { tail -n 5 "$log" >&2 && say "apt-get update failed (above); trying with the package lists that are there"; }
  if ! apt-get -q -y --no-install-recommends -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 \
    install "$@" </dev/null >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    die "apt-get install $* failed (above)"
  fi
  case " $* " in *" redis-server "*) disable_service redis-server ;; esac
  case " $* " in *" prometheus "*) disable_service prometheus ;; esac
  case " $* " in *" pgbouncer "*) disable_service pgbouncer ;; esac
)

# hold_servers writes two files. policy-rc.d answers 101 ("do not start") to package
# scripts, but only while this process lives, in case a kill -9 leaves the file behind.
# The other file keeps Debian from creating a Postgres cluster.
hold_servers() {
  if [ -e "$policy" ] && [ ! -e "$policy_aside" ]; then mv "$policy" "$policy_aside"; fi
  printf '#!/bin/sh\nkill -0 %d 2>/dev/null && exit 101\nexit 0\n' "$BASHPID" >"$policy"
  chmod 755 "$policy"
  mkdir -p "$clusters"
  echo 'create_main_cluster = false' >"$no_cluster"
}

allow_servers() {
  rm -f "$policy" "$no_cluster"
  if [ -e "$policy_aside" ]; then mv "$policy_aside" "$policy"; fi
  rmdir -p --ignore-fail-on-non-empty "$clusters" 2>/dev/null || true
}

# disable_service keeps a package that was just installed from starting its server at
# the next boot.
disable_service() {
  deb-systemd-helper disable "$1.service" >/dev/null 2>&1 || true
  update-rc.d "$1" disable >/dev/null 2>&1 || true
}

say() { echo "setup: $*" >&2; }
die() { say "$@" && exit 1; }

main "$@"
