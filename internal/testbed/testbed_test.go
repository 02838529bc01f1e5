package testbed

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/testkit"
)

func TestMain(m *testing.M) {
	code := m.Run()
	testkit.RemovePrograms()
	os.Exit(code)
}

func invoke(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return invokeIn(t.Context(), args...)
}

func invokeIn(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errOut testkit.Output
	p := command.Program{Arguments: args, Stdout: &out, Stderr: &errOut}
	root := &cobra.Command{Use: "forgerun"}
	root.AddCommand(Commands(p)...)
	code, err := command.Execute(ctx, root, "", args, &out, &errOut)
	if err != nil {
		code = p.Unusable(err)
	}
	return code, out.String(), errOut.String()
}

func TestBadUse(t *testing.T) {
	t.Parallel()
	faults, description := filepath.Join(t.TempDir(), "faults.yaml"), filepath.Join(t.TempDir(), "api.yaml")
	require.NoError(t, os.WriteFile(faults, []byte("- match: {path: /v1/jobs}\n  efect: {status: 500}\n"), 0o600))
	require.NoError(t, os.WriteFile(description, []byte("retry: {a: b}\nsubmitt: [POST /jobs]\n"), 0o600))
	for line, want := range map[string]string{
		"verdict --profile overloaded":                             "there is no command to run",
		"verdict --profil x -- true":                               "unknown flag: --profil (forgerun verdict --help)",
		"verdict --profiles all,slow -- true":                      `unknown profile "slow"; use one of default, flaky-network, `,
		"verdict --skip back-off -- true":                          `unknown rule "back-off"; the rules are retry-after, `,
		"verdict --require backoff --skip backoff -- x":            "--require names the rule backoff: --rules must include it",
		"verdict --rules backoff --skip backoff -- x":              "--skip leaves no rule to judge",
		"verdict --profile x --profiles y -- x":                    "--profile and --profiles cannot be combined",
		"verdict --faults x --profile overloaded -- x":             "--faults replaces a profile: remove --profile and --profiles",
		"verdict --faults /none --url http://x":                    "there is no command to run",
		"verdict --seeds 0 -- x":                                   "--seeds must be at least 1",
		"verdict --set A=1 -- x":                                   `--set "A=1" must be NAME=VALUE`,
		"verdict --set FORGERUN_HTTP_ADDR=:1 -- x":                 "--set cannot change FORGERUN_HTTP_ADDR",
		"verdict --set FORGERUN_A=1 --url http://x -- x":           "--set needs the service that verdict starts",
		"verdict --fetch --target http://x -- x":                   "--fetch needs the service that verdict starts",
		"verdict --advance 1h --target http://x -- x":              "it cannot be combined with --target",
		"verdict --advance 1h/1ms -- x":                            "must be a duration such as 25h, or DURATION/INTERVAL such as 1h/1s",
		"verdict --key frk_x -- x":                                 "--key needs --url",
		"verdict --target localhost -- true":                       "--target \"localhost\" must be an address such as http://127.0.0.1:3000",
		"verdict --target http://x/v1 -- true":                     "must be an address without a path",
		"proxy --target http://x --api acme":                       `"acme" is not one of the built-in descriptions azure, `,
		"verdict --faults " + faults + " -- x":                     "with match and effect: line 2: unknown member \"efect\" (",
		"proxy --target http://x --api " + description:             "line 1: unexpected mapping; line 2: unknown member \"submitt\"\n",
		"search --budget 1m":                                       "there is no command to run",
		"search --budget 0s -- x":                                  "--budget must be above 0",
		"search --workers 33 -- x":                                 "--workers must be 1 to 32",
		"search --min-support 0 -- x":                              "--min-support must be at least 1",
		"search --tries 1 -- x":                                    "--tries must be at least 2",
		"search --regressions /none --target http://other -- true": "there is no *.yaml file in /none",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := invoke(t, strings.Fields(line)...)
			require.Equal(t, exitUnusable, code, stderr)
			require.Empty(t, stdout)
			require.Contains(t, stderr, want)
			require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
		})
	}
}
