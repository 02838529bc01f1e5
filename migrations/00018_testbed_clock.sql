-- +goose Up

-- The clock of a test bed: its moves, the latest of which holds. The service's time was service_at when Postgres' clock
-- showed real_at, and has passed at the rate since, unless it is frozen. Without a row the two are the same.
CREATE TABLE testbed_clock (
  number     bigint PRIMARY KEY,
  real_at    timestamptz NOT NULL,
  service_at timestamptz NOT NULL,
  rate       float8 NOT NULL,
  frozen     boolean NOT NULL,
  CONSTRAINT testbed_clock_rate CHECK (rate BETWEEN 0.1 AND 3600)
);

-- What takes the place of Postgres' functions in sessions of a test bed, which search this schema first. A move replaces
-- them by ones with the setting in them as constants: they are inlined, and plans that were cached are made anew. Without a
-- move they are Postgres' own. No other session sees them.
CREATE SCHEMA testbed;
CREATE FUNCTION testbed.now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
  AS 'SELECT pg_catalog.now()';
CREATE FUNCTION testbed.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
  AS 'SELECT pg_catalog.clock_timestamp()';

-- The moment at which something happens that was due at a time, null for what was not: that time, if the clock has jumped
-- over it, or does not run at the rate of Postgres' clock.
CREATE FUNCTION testbed.moment(due timestamptz) RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
  AS 'SELECT pg_catalog.clock_timestamp()';

-- Moves the clock: by a jump, and from then on it passes at the rate, or stands still. The move takes effect after a wait in which
-- it is committed, so that what reads the clock that ran faster until then has not seen a later time. All is done by one call, and
-- the time is taken at its end.
-- +goose StatementBegin
CREATE FUNCTION testbed.move(next bigint, jump interval, wait interval, old_rate float8, new_rate float8, new_frozen boolean)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  effective float8 := CASE WHEN new_frozen THEN 0 ELSE new_rate END;
  real_then timestamptz := pg_catalog.clock_timestamp() + wait;
  service_then timestamptz := testbed.clock_timestamp() + wait * old_rate + jump;
  passed text := format('(pg_catalog.%%s() - timestamptz %L) * float8 %L', real_then, effective);
  shown text := CASE effective WHEN 0 THEN '' WHEN 1 THEN format(' + (pg_catalog.%%s() - timestamptz %L)', real_then)
    ELSE ' + ' || passed END;
  body text;
BEGIN
  INSERT INTO public.testbed_clock VALUES (next, real_then, service_then, new_rate, new_frozen);
  body := format('SELECT timestamptz %L', service_then) || format(shown, 'now');
  EXECUTE format('CREATE OR REPLACE FUNCTION testbed.now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE AS %L', body);
  body := format('timestamptz %L', service_then) || format(shown, 'clock_timestamp');
  EXECUTE format('CREATE OR REPLACE FUNCTION testbed.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE AS %L',
    'SELECT ' || body);
  EXECUTE format('CREATE OR REPLACE FUNCTION testbed.moment(due timestamptz) RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE AS %L',
    format('SELECT CASE WHEN due <= timestamptz %L THEN least(due, ', CASE effective WHEN 1 THEN service_then ELSE 'infinity' END)
    || body || ') ELSE ' || body || ' END');
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP SCHEMA testbed CASCADE;
DROP TABLE testbed_clock;
