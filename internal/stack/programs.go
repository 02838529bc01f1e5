package stack

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// ErrNotInstalled is wrapped by errors of the Start functions if a server program is missing. The message says how to install it.
var ErrNotInstalled = errors.New("not installed")

var errWindows = errors.New("forgerun starts no servers on Windows; use WSL or a container")

// machine has the folders in which to look for programs and to create servers. Tests use their own.
type machine struct {
	programDirs []string // glob patterns of folders, best first; of several matches of a pattern, the highest version is best
	spareDir    string   // parent of folders for servers that cannot enter their Dir; see openHome
}

func thisMachine() machine {
	if runtime.GOOS == "windows" {
		return machine{} // servers need Unix signals, users and process groups
	}
	return machine{spareDir: "/var/lib/forgerun", programDirs: append(filepath.SplitList(os.Getenv("PATH")),
		"/usr/lib/postgresql/*/bin", // Debian, Ubuntu
		"/usr/pgsql-*/bin",          // Red Hat packages from postgresql.org
		"/opt/homebrew/opt/postgresql*/bin", "/usr/local/opt/postgresql*/bin", "/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
		"/opt/homebrew/bin", "/opt/homebrew/opt/redis/bin", "/opt/homebrew/opt/valkey/bin", "/home/linuxbrew/.linuxbrew/bin",
		"/usr/local/bin", "/usr/bin", "/usr/sbin")}
}

func (o ServerOptions) computer() machine {
	m := thisMachine()
	if o.machine != nil {
		m = *o.machine
	}
	m.programDirs = append(slices.Clip(m.programDirs), o.Programs)
	return m
}

// find returns the folders that contain all of the programs, best first.
func (m machine) find(names ...string) []string {
	var found []string
	for _, pattern := range m.programDirs {
		if !filepath.IsAbs(pattern) { // the result must not depend on the working folder
			continue
		}
		dirs, _ := filepath.Glob(pattern) // fails for bad patterns only
		slices.SortStableFunc(dirs, func(a, b string) int { return cmp.Compare(versionInPath(b), versionInPath(a)) })
		for _, dir := range dirs {
			if holdsPrograms(dir, names) && !slices.Contains(found, dir) {
				found = append(found, dir)
			}
		}
	}
	return found
}

func holdsPrograms(dir string, names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool {
		_, err := exec.LookPath(filepath.Join(dir, name))
		return err != nil
	})
}

var firstNumber = regexp.MustCompile(`[0-9]+`)

// versionInPath returns 17 for ".../17/bin" and ".../postgresql@17/bin", and 0 if the folder's name has no number.
func versionInPath(binDir string) int {
	n, _ := strconv.Atoi(firstNumber.FindString(filepath.Base(filepath.Dir(binDir))))
	return n
}

// chooseVersion returns the first folder in `bins` with the major version of the cluster in dataDir, because other versions cannot run the
// cluster. If there is no cluster or no such folder, it returns bins[0].
func chooseVersion(bins []string, dataDir string) string {
	text, _ := os.ReadFile(filepath.Join(dataDir, "PG_VERSION"))
	made, err := strconv.Atoi(strings.TrimSpace(string(text)))
	return bins[max(0, slices.IndexFunc(bins, func(bin string) bool { return err == nil && versionInPath(bin) == made }))]
}

func notInstalled(programs, apt, dnf, brew string) error {
	if runtime.GOOS == "windows" {
		return fmt.Errorf("%s: %w: %w", programs, ErrNotInstalled, errWindows)
	}
	return fmt.Errorf("%s: %w. To install it: sudo apt-get install %s (Debian, Ubuntu), sudo dnf install %s (Fedora), "+
		"brew install %s (Homebrew)", programs, ErrNotInstalled, apt, dnf, brew)
}

// FindForgerun returns the absolute path of the forgerun binary at path. If path is empty, it returns the path of this program.
func FindForgerun(path string) (string, error) {
	if path == "" {
		return os.Executable()
	}
	path, err := filepath.Abs(path)
	if err == nil {
		_, err = exec.LookPath(path) // fails if it is not executable
	}
	if err != nil {
		return "", fmt.Errorf("there is no forgerun program at %s: build it, or name it with --forgerun", path)
	}
	return path, nil
}
