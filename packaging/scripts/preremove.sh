#!/bin/sh
# Before a removal, not before an upgrade: stops the units and takes back that they start at boot.
set -e

# dpkg: "remove"; rpm: how many versions will be left.
if [ "$1" = remove ] || [ "$1" = 0 ]; then
  if [ -d /run/systemd/system ]; then
    systemctl stop 'forgerun-worker@*.service' forgerun-api.service forgerun-deliverer.service || true
  fi
  if command -v systemctl >/dev/null; then
    systemctl --no-reload disable 'forgerun-worker@.service' forgerun-api.service forgerun-deliverer.service >/dev/null 2>&1 || true
  fi
fi
