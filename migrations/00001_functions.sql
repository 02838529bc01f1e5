-- +goose Up

-- Returns the first version of ForgeRun that had these migrations. A database that has ForgeRun's tables but not this function is older,
-- and cannot be migrated.
CREATE FUNCTION schema_since() RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT '0.1.0' $$;

-- Returns a version 7 UUID for the time `at` (RFC 9562). It begins with 48 bits of milliseconds; the rest is random. Setting bits 52 and 53
-- turns version 4 (0100) into version 7 (0111).
-- +goose StatementBegin
CREATE FUNCTION uuid7(at timestamptz) RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
  SELECT encode(set_bit(set_bit(overlay(
    uuid_send(gen_random_uuid())
    PLACING substring(int8send((extract(epoch FROM at) * 1000)::bigint) FROM 3) FROM 1 FOR 6),
    52, 1), 53, 1), 'hex')::uuid
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION event_data(work_kind text, definition jsonb) RETURNS jsonb LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT jsonb_build_object('work_kind', work_kind,
    'duration_ms', definition -> 'duration_ms', 'expected_outcome', definition -> 'expected_outcome')
$$;
-- +goose StatementEnd

-- Returns the id of the endpoint for a callback URL. All callbacks of a client to one origin have the same endpoint. An origin is scheme,
-- host and port; the scheme's default port may be omitted. The id uses sha256, because some builds of Postgres refuse md5. A backslash must
-- be doubled in text that is cast to bytea.
-- +goose StatementBegin
CREATE FUNCTION callback_endpoint(client uuid, url text) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT encode(substring(sha256(replace(client::text || regexp_replace(lower(coalesce(substring(url FROM '^[^:]+://[^/?#]+'), url)),
    '^(?:(http://.*):(?:0*80)?|(https://.*):(?:0*443)?)$', '\1\2'), '\', '\\')::bytea) FROM 1 FOR 16), 'hex')::uuid
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION callback_endpoint(uuid, text), event_data(text, jsonb), uuid7(timestamptz), schema_since();
