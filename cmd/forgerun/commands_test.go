package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// commands are those of the help text that serve, or look after, the service.
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

// Every command tells how it is used when it is asked, and does nothing else.
func TestEveryCommandHelps(t *testing.T) {
	t.Parallel()
	for _, command := range commands(t) {
		for _, help := range []string{"--help", "-help", "-h", "help"} {
			code, stdout, stderr := runWith(t, required, command, help)
			require.Zero(t, code, "%s %s", command, help)
			require.Empty(t, stderr)
			require.Contains(t, stdout, "Usage", "%s %s", command, help)
			require.Contains(t, stdout, command)
		}
	}
	for args, flag := range map[string]string{"migrate --help": "-to version", "healthcheck --help": "-url address"} {
		_, stdout, _ := runWith(t, required, strings.Fields(args)...)
		require.Contains(t, stdout, flag)
	}
}

// What a command does not understand it refuses, with a sentence.
func TestEveryCommandRefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	for _, command := range commands(t) {
		code, stdout, stderr := runWith(t, required, command, "nonsense")
		require.Equal(t, 2, code, command)
		require.Empty(t, stdout)
		require.Contains(t, stderr, command)
	}
	for args, sentence := range map[string]string{
		"config doctor":        "with role api, worker, webhooks, dev, migrate, rotate-signing-key",
		"config worker --json": "unknown flag: --json",
		"config worker api":    "use 'config [ROLE]'",
		"migrat":               "did you mean migrate?",
		"healthcheck --ulr x":  "did you mean --url?",
		"migrate -to 99":       "there is no version 99 of the schema: this program knows 0 (none) to ",
		"migrate -to -2":       "there is no version -2",
		"migrate -to x":        "invalid argument",
		"migrate up down":      `does not know "up down"`,
		"migrate --json":       "unknown flag: --json (forgerun migrate --help)",
		"healthcheck -url":     "needs an argument",
	} {
		code, stdout, stderr := runWith(t, required, strings.Fields(args)...)
		require.Equal(t, 2, code, args)
		require.Empty(t, stdout)
		require.Contains(t, stderr, sentence)
	}
	for _, role := range configRoles {
		code, stdout, _ := runWith(t, merge(required, env{"FORGERUN_MASTER_KEY": masterKey, "FORGERUN_PUBLIC_URL": "https://x.test"}), "config",
			role)
		require.Zero(t, code)
		require.Contains(t, stdout, "FORGERUN_DATABASE_URL")
	}
}
