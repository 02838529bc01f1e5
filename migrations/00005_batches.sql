-- +goose Up

-- `items` contains the accepted and refused items, in the order of the request and of the response. `items` never changes. The columns
-- from `status` on are written once, when the batch is complete.
CREATE TABLE batches (
  batch_id       uuid PRIMARY KEY,
  client_id      uuid NOT NULL,
  created_at     timestamptz NOT NULL,
  correlation_id text,
  language       text NOT NULL,
  request_id     text NOT NULL,
  items          jsonb NOT NULL,
  refused        int NOT NULL,
  status         text,
  completed_at   timestamptz,
  succeeded      int,
  failed         int,
  canceled       int,
  failures       jsonb,
  CONSTRAINT batches_status_known CHECK (status IN ('COMPLETED', 'COMPLETED_WITH_ERRORS', 'FAILED', 'CANCELLED')),
  CONSTRAINT batches_outcome_complete CHECK (num_nulls(status, completed_at, succeeded, failed, canceled, failures) IN (0, 6))
);
CREATE INDEX batches_open ON batches (batch_id) WHERE completed_at IS NULL;
CREATE INDEX batches_ended ON batches (completed_at) WHERE completed_at IS NOT NULL;

-- An operation first stores the matching jobs in bulk_items, newest first, in several steps. Each step stores the last job that it read in
-- the column `position`. Then the operation processes the items. The results of items and the counters are written in one transaction.
-- client_id is null if an operator started the operation. No index contains the counters, so their updates are in place (HOT).
CREATE TABLE bulk_operations (
  bulk_id     uuid PRIMARY KEY,
  client_id   uuid,
  operator    text NOT NULL,
  action      text NOT NULL CONSTRAINT bulk_operations_action_known CHECK (action IN ('retry', 'cancel', 'delete')),
  filter      jsonb NOT NULL,
  rate        int NOT NULL CONSTRAINT bulk_operations_rate_in_range CHECK (rate BETWEEN 1 AND 1000),
  override    boolean NOT NULL,
  request_id  text NOT NULL,
  created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  started_at  timestamptz,
  gathered_at timestamptz,
  finished_at timestamptz,
  aborted     boolean NOT NULL DEFAULT false,
  position    uuid,
  more        boolean NOT NULL DEFAULT false, -- more jobs matched than one operation may process
  total       int NOT NULL DEFAULT 0,
  succeeded   int NOT NULL DEFAULT 0,
  skipped     int NOT NULL DEFAULT 0,
  failed      int NOT NULL DEFAULT 0,
  CONSTRAINT bulk_operations_counted CHECK (least(succeeded, skipped, failed) >= 0 AND succeeded + skipped + failed <= total),
  CONSTRAINT bulk_operations_ends_once CHECK (finished_at IS NOT NULL OR NOT aborted),
  CONSTRAINT bulk_operations_done_completely CHECK (aborted OR finished_at IS NULL
    OR gathered_at IS NOT NULL AND succeeded + skipped + failed = total)
) WITH (fillfactor = 50);
CREATE INDEX bulk_operations_client ON bulk_operations (client_id, bulk_id);
CREATE INDEX bulk_operations_open ON bulk_operations (bulk_id) WHERE finished_at IS NULL;
CREATE INDEX bulk_operations_ended ON bulk_operations (finished_at) WHERE finished_at IS NOT NULL;
CREATE TRIGGER bulk_operations_of_a_client AFTER INSERT ON bulk_operations REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_erased();

-- attempt and event_seq are the job's values when the item was stored.
CREATE TABLE bulk_items (
  bulk_id   uuid NOT NULL,
  job_id    uuid NOT NULL,
  client_id uuid NOT NULL,
  attempt   int NOT NULL,
  event_seq int NOT NULL,
  result    text NOT NULL DEFAULT 'PENDING'
    CONSTRAINT bulk_items_result_known CHECK (result IN ('PENDING', 'SUCCEEDED', 'SKIPPED', 'FAILED')),
  code      text,
  detail    text,
  ended_at  timestamptz,
  PRIMARY KEY (bulk_id, job_id),
  CONSTRAINT bulk_items_result_complete CHECK ((result = 'PENDING') = (ended_at IS NULL))
);
-- `result` is the first column, so that the planner uses the primary key to read all items of one operation.
CREATE INDEX bulk_items_result ON bulk_items (result, bulk_id, job_id);

-- +goose Down
DROP TABLE bulk_items, bulk_operations, batches;
