#!/bin/sh
# Stops and disables the units before a removal, but not before an upgrade.
set -e

# Removal: dpkg passes "remove"; rpm passes 0, the number of versions that will remain.
if [ "$1" = remove ] || [ "$1" = 0 ]; then
  if [ -d /run/systemd/system ]; then
    systemctl stop 'forgerun-worker@*.service' forgerun-api.service forgerun-deliverer.service || true
  fi
  if command -v systemctl >/dev/null; then
    systemctl --no-reload disable 'forgerun-worker@.service' forgerun-api.service forgerun-deliverer.service >/dev/null 2>&1 || true
  fi
fi
