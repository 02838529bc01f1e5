#!/bin/sh
# Runs after a removal. It keeps the user, who may own files. The data in Postgres is not touched.
set -e

if [ -d /run/systemd/system ]; then
  systemctl daemon-reload || true
fi
# Purging the Debian package also deletes files that an operator added to the configuration's folder.
if [ "$1" = purge ]; then
  rm -rf /etc/forgerun
fi
