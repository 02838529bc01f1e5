package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func commands(t *testing.T) (names []string) {
	t.Helper()
	for _, c := range (&program{}).root().Commands() {
		if c.GroupID == groupServe || c.GroupID == groupManage || c.Name() == "version" {
			names = append(names, c.Name())
		}
	}
	require.Contains(t, names, "rotate-signing-key")
	return names
}

func TestEveryCommandRefusesUnknownArguments(t *testing.T) {
	t.Parallel()
	for _, name := range commands(t) {
		code, stdout, stderr := runWith(t, required, name, "nonsense")
		require.Equal(t, 2, code, name)
		require.Empty(t, stdout)
		require.Contains(t, stderr, name)
	}
	for args, sentence := range map[string]string{
		"doctor migrate":    "only api, worker, deliverer, dev",
		"doctor api worker": `does not know "worker"`,
		"config doctor":     "only api, worker, deliverer, dev, migrate, rotate-signing-key",
		"migrate --to 99":   "unknown schema version 99: this program supports 0 (none) to ",
		"migrate --to -2":   "unknown schema version -2",
		"migrate up down":   `does not know "up down"`,
	} {
		code, stdout, stderr := runWith(t, required, strings.Fields(args)...)
		require.Equal(t, 2, code, args)
		require.Empty(t, stdout)
		require.Contains(t, stderr, sentence)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	_, line, _ := runWith(t, nil, "version")
	require.Regexp(t, `^forgerun \S+ \(commit \S+, [^,]+, go\S+, \w+/\w+\)\n$`, line)
	code, flag, _ := runWith(t, nil, "--version")
	require.Zero(t, code)
	require.Equal(t, line, flag)
	_, text, _ := runWith(t, nil, "version", "--json")
	shown := parsed[map[string]string](t, text)
	require.Equal(t, version, shown["version"])
	require.Len(t, shown, 5)
}

// The password and the parameters of an address are masked. If it is unclear which part of an address is the password, all of it is
// masked.
func TestMaskAddress(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"postgres://me:hunter2@db.example.com/x":                                 "postgres://me:********@db.example.com/x",
		"postgresql://me:hunter2@db:5432/x?sslmode=require":                      "postgresql://me:********@db:5432/x?********",
		"postgres://me@db/x":                                                     "postgres://me@db/x",
		"postgres:///x?host=/run/postgresql&user=me&password=hunter2":            "postgres:///x?********",
		"postgres://db/x?sslmode=require;password=hunter2":                       "postgres://db/x?********",
		"postgres://me:hunter2@a:5432,b:5433/x":                                  "postgres://me:********@a:5432,b:5433/x",
		"postgres://me:h@unter2@db/x":                                            "postgres://me:********@db/x",
		"postgres://me:@db/x":                                                    "postgres://me:********@db/x",
		"redis://:hunter2@cache":                                                 "redis://:********@cache",
		"rediss://me:hunter2@cache:6380/2?skip_verify=true":                      "rediss://me:********@cache:6380/2?********",
		"unix://:hunter2@/run/redis.sock?db=1":                                   "unix://:********@/run/redis.sock?********",
		"redis-cluster://me:hunter2@a:7000,b:7001":                               "redis-cluster://me:********@a:7000,b:7001",
		"redis-sentinel://:hunter2@a,b:26379/1?master=m&sentinel_password=hunt2": "redis-sentinel://:********@a,b:26379/1?********",

		"http://127.0.0.1:4318":                            "http://127.0.0.1:4318",
		"https://me:hunter2@traces/hunter2?key=hunter2":    "https://me:********@traces/********?********",
		"deployment=x,token=hunter2":                       mask,
		"redis://hunter2@cache":                            mask,
		"postgres://me:hun/ter2@db/x":                      mask,
		"postgres://me:12/hunter2@db/x":                    mask,
		"postgres://me:1?hunter2@db/x":                     mask,
		"postgres://me:1#hunter2@db/x":                     mask,
		"postgres://me:hunter%zz@db/x":                     mask,
		"postgres://me:hunter2@db/x?sslmode=%zz&user=me@x": mask,
		"postgres://me:hunter2@db:port/x":                  mask,
		"host=db user=me password=hunter2":                 mask,
		"postgres://me:hunter2@db/x\npostgres://hunter2":   mask,
		"": "",
	} {
		require.Equal(t, want, printed(variable{secret: true}, raw), raw)
	}
	require.Equal(t, "text", printed(variable{}, "text"))
}

var shownHelp = regexp.MustCompile("(?ms)^```text\n\\$ forgerun ([^\n]*)\n(.*?)^```$")

func TestPageListsTheHelpOfTheProgram(t *testing.T) {
	t.Parallel()
	page := readText(t, "../../docs/reference/cli.md")
	var shown []string
	for _, block := range shownHelp.FindAllStringSubmatch(page, -1) {
		code, stdout, _ := runWith(t, nil, strings.Fields(block[1])...)
		require.Zero(t, code, block[1])
		require.Equal(t, stdout, block[2], "forgerun %s in docs/reference/cli.md", block[1])
		shown = append(shown, block[1])
	}
	require.Contains(t, shown, "help exit-codes")
}

func TestPageListsCommandsThatExist(t *testing.T) {
	t.Parallel()
	page := readText(t, "../../docs/reference/cli.md")
	root := (&program{getenv: func(string) string { return "" }}).root()
	calls := regexp.MustCompile(`(?m)^forgerun ([a-z-]+(?: [a-z-]+)?)`).FindAllStringSubmatch(page, -1)
	require.Greater(t, len(calls), 30)
	for _, call := range calls {
		if words := strings.Fields(call[1]); words[0] != "help" && words[0] != "completion" {
			found, rest, err := root.Find(words)
			require.NoError(t, err)
			require.True(t, len(rest) == 0 || !found.HasAvailableSubCommands(), "forgerun %s", call[1])
		}
	}
}
