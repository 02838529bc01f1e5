package devstack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// chooseVersion returns the first of the program folders (bins, not empty) that
// can run the cluster in dataDir: a cluster runs only under the major version
// that made it. Where there is no cluster yet, that is the first.
func chooseVersion(ctx context.Context, bins []string, dataDir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dataDir, "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return bins[0], nil
	}
	if err != nil {
		return "", err
	}
	want := strings.TrimSpace(string(text))
	var have []string
	for _, bin := range bins {
		major, err := postgresMajor(ctx, bin)
		if err != nil {
			return "", err
		}
		if major == want {
			return bin, nil
		}
		have = append(have, major)
	}
	return "", fmt.Errorf("the cluster in %s was made by Postgres %s, but this machine has version %s: "+
		"install version %s, or remove the folder to begin anew", dataDir, want, strings.Join(have, ", "), want)
}

// postgresMajor reads "17" from "postgres (PostgreSQL) 17.2 (Homebrew)".
func postgresMajor(ctx context.Context, bin string) (string, error) {
	program := filepath.Join(bin, "postgres")
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("asking %s for its version: %w", program, err)
	}
	words := strings.Fields(string(out))
	if len(words) < 3 {
		return "", fmt.Errorf("%s reports no version: %q", program, out)
	}
	major, _, _ := strings.Cut(words[2], ".")
	return major, nil
}
