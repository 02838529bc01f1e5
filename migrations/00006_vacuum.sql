-- +goose Up

-- Readers and writers do not wait for this lock, nor behind it, so it may take
-- longer than usual: only a vacuum holds it, and that gives way after a second.
SET LOCAL lock_timeout = '5s';

-- A job moves through four indexes in its life and leaves dead entries at the
-- heads of jobs_waiting, jobs_scheduled and jobs_ended, which are walked from
-- there again and again. And the counting of a million waiting jobs reads no row
-- of which a vacuum has said that everybody sees it. With the usual fifth of a
-- table, which keeps ended jobs for weeks, both would wait for a million changes.
ALTER TABLE jobs SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05);
ALTER TABLE events SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.05);

-- +goose Down
SET LOCAL lock_timeout = '5s';
ALTER TABLE jobs RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_insert_scale_factor);
ALTER TABLE events RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_insert_scale_factor);
