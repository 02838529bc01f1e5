#!/bin/sh
# Runs after the installation or upgrade of a Debian or RPM package. It creates the user, sets the rights
# of the configuration, and restarts units that are running. It enables and starts no unit.
set -e

if ! getent group forgerun >/dev/null; then
  groupadd --system forgerun
fi
if ! getent passwd forgerun >/dev/null; then
  useradd --system --gid forgerun --no-create-home --home-dir /nonexistent \
    --shell /usr/sbin/nologin --comment "ForgeRun" forgerun
fi

# The configuration has secrets: root can write it, the services can read it, and others have no access.
chown root:forgerun /etc/forgerun /etc/forgerun/forgerun.env
chmod 0750 /etc/forgerun
chmod 0640 /etc/forgerun/forgerun.env

if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  # try-restart skips units that are not running. Each unit runs the migration first.
  systemctl try-restart 'forgerun-api.service' 'forgerun-deliverer.service' 'forgerun-worker@*.service' || true
fi

# First installation: dpkg passes "configure" without an old version; rpm passes 1, the number of installed versions.
if { [ "$1" = configure ] && [ -z "$2" ]; } || [ "$1" = 1 ]; then
  cat <<'TEXT'
ForgeRun is installed; nothing runs yet.

  1. Fill in /etc/forgerun/forgerun.env
  2. Check it:   sudo systemd-run --quiet --pipe --wait --uid=forgerun \
                   --property=EnvironmentFile=/etc/forgerun/forgerun.env forgerun doctor
  3. Start it:   sudo systemctl enable --now forgerun-api forgerun-deliverer forgerun-worker@1

To try it without any configuration, as an ordinary user: forgerun dev
TEXT
fi
