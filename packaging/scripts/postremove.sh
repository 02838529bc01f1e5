#!/bin/sh
# After a removal. The user stays, since files may belong to it; the data is in Postgres.
set -e

if [ -d /run/systemd/system ]; then
  systemctl daemon-reload || true
fi
# Files that an operator put beside the configuration go with a purge of the Debian package.
if [ "$1" = purge ]; then
  rm -rf /etc/forgerun
fi
