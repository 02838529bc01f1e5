-- +goose Up

-- What happened in each ten seconds, and in each minute: the leader writes it, for operators to look back. Counts are of jobs,
-- times in milliseconds, null where no job ran to its end. It can be computed again as long as the jobs are there.
CREATE TABLE history (
  width       int NOT NULL CONSTRAINT history_width_known CHECK (width IN (10, 60)), -- in seconds
  at          timestamptz NOT NULL, -- where the bucket begins
  submitted   int NOT NULL,
  succeeded   int NOT NULL,
  failed      int NOT NULL,
  canceled    int NOT NULL,
  retried     int NOT NULL, -- attempts before the last of the jobs that ended
  wait_ms_p50 bigint,
  wait_ms_p99 bigint,
  run_ms_p50  bigint,
  run_ms_p99  bigint,
  PRIMARY KEY (width, at)
);

-- +goose Down
DROP TABLE history;
