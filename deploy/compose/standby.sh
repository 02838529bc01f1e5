#!/bin/sh
# The standby of the profile ha. At its first start it copies the primary, which PGHOST names; then it follows the primary.
set -eu

if [ ! -d "$PGDATA" ]; then
  rm -rf "$PGDATA.part"
  psql --quiet --dbname=postgres --command="SELECT pg_create_physical_replication_slot('standby')
    WHERE NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = 'standby')" >/dev/null
  pg_basebackup --pgdata="$PGDATA.part" --write-recovery-conf --slot=standby --checkpoint=fast
  mv "$PGDATA.part" "$PGDATA" # only a complete copy gets this name; an incomplete copy is made again
fi
exec postgres -c hba_file=/etc/forgerun/pg_hba.conf -c max_slot_wal_keep_size=2GB
