package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Of an address only the password is masked; all of it where one cannot be sure
// what the password is.
func TestMaskAddress(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"postgres://me:hunter2@db.example.com/x": "postgres://me:********@db.example.com/x",
		"postgresql://me:hunter2@db:5432/x?sslmode=require&pool_max_conns=30": "postgresql://me:********@db:5" +
			"432/x?sslmode=require&pool_max_conns=30",
		"postgres://me@db/x": "postgres://me@db/x",
		"postgres://db":      "postgres://db",
		"postgres:///x?host=/run/postgresql&user=me&password=hunter2": "postgres:///x?host=/run/postgresql&user=me&password=********",
		"postgres://db/x?user=me:hunter2&sslmode=disable":             "postgres://db/x?********&sslmode=disable",
		"postgres://db/x?sslmode=require;password=hunter2":            "postgres://db/x?********",
		"postgres://db/x?options=-chunter2&pwd=hunter2&hunter2":       "postgres://db/x?********&********&********",
		"postgres://me:hunter2@a:5432,b:5433,[::1]:5434/x":            "postgres://me:********@a:5432,b:5433,[::1]:5434/x",
		"postgres://me:h@unter2@db/x":                                 "postgres://me:********@db/x",
		"postgres://me:h%40unter2@db/x":                               "postgres://me:********@db/x",
		"postgres://me:@db/x":                                         "postgres://me:********@db/x",
		"redis://:hunter2@cache":                                      "redis://:********@cache",
		"rediss://me:hunter2@cache:6380/2?skip_verify=true":           "rediss://me:********@cache:6380/2?skip_verify=true",
		"unix://:hunter2@/run/redis.sock?db=1":                        "unix://:********@/run/redis.sock?db=1",
		"redis-cluster://me:hunter2@a:7000,b:7001":                    "redis-cluster://me:********@a:7000,b:7001",
		"redis-sentinel://:hunter2@a,b:26379/1?master=m&sentinel_password=hunt2": "redis-sentinel://:********@a," +
			"b:26379/1?master=m&sentinel_password=********",

		"redis://hunter2@cache":                            mask,
		"postgres://me:hun/ter2@db/x":                      mask,
		"postgres://me:12/hunter2@db/x":                    mask,
		"postgres://me:1?hunter2@db/x":                     mask,
		"postgres://me:1#hunter2@db/x":                     mask,
		"postgres://me:hunter2":                            mask,
		"postgres://me:hunter%zz@db/x":                     mask,
		"postgres://me:hunter2@db/x?sslmode=%zz&user=me@x": mask,
		"postgres://me:hunter2@db:port/x":                  mask,
		"host=db user=me password=hunter2":                 mask,
		"mysql://me:hunter2@db/x":                          mask,
		"hunter2-hunter2-hunter2":                          mask,
		"postgres://me:hunter2@db/x\npostgres://hunter2":   mask,
		"": "",
	} {
		require.Equal(t, want, printed(variable{secret: true}, raw), raw)
	}
	require.Equal(t, "text", printed(variable{}, "text"))
}
