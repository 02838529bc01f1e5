package devstack

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMissingServerHasOneCommand(t *testing.T) {
	t.Parallel()
	postgres := installation{debian: "postgresql", fedora: "postgresql-server", homebrew: "postgresql@17"}
	for _, test := range []struct{ system, release, want string }{
		{"linux", "NAME=x\nID=debian\n", "sudo apt-get install postgresql"},
		{"linux", "ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n", "sudo apt-get install postgresql"},
		{"linux", "ID=fedora\n", "sudo dnf install postgresql-server"},
		{"linux", "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", "sudo dnf install postgresql-server"},
		{"darwin", "", "brew install postgresql@17"},
		{"linux", "ID=nixos\n",
			"apt-get install postgresql (Debian, Ubuntu), dnf install postgresql-server (Fedora), brew install postgresql@17 (Homebrew)"},
	} {
		m := machine{osRelease: filepath.Join(t.TempDir(), "os-release")}
		require.NoError(t, os.WriteFile(m.osRelease, []byte(test.release), 0o600))
		require.Equal(t, test.want, postgres.command(test.system, m.families()))
	}
}

// Programs that are given are used where the machine has none.
func TestGivenProgramsAreUsed(t *testing.T) {
	t.Parallel()
	installed := thisMachine().find("postgres", "initdb")
	require.NotEmpty(t, installed)
	given := tempDir(t) // which every user can enter
	for _, name := range []string{"postgres", "initdb"} {
		script := "#!/bin/sh\nexec " + filepath.Join(installed[0], name) + ` "$@"` + "\n"
		require.NoError(t, os.WriteFile(filepath.Join(given, name), []byte(script), 0o755))
	}
	m := machine{spareDir: thisMachine().spareDir}
	server, err := m.startPostgres(testContext(t), PostgresOptions{Dir: postgresDir(t), Programs: given})
	require.NoError(t, err)
	require.NoError(t, server.Stop(Fast))
}
