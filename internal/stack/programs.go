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

// ErrNotInstalled is wrapped by the Start functions when a server program is missing. The text says how to get it.
var ErrNotInstalled = errors.New("not installed")

var errWindows = errors.New("on Windows none is started; use WSL or a container")

// machine is what the package takes from the computer it runs on. Tests replace it.
type machine struct {
	// programDirs are searched for programs in order. Of the matches of a glob pattern the highest version is first.
	programDirs []string
	// spareDir is where a root parent puts folders that the servers' user could not enter where they were asked for; see openHome.
	spareDir string
}

func thisMachine() machine {
	if runtime.GOOS == "windows" {
		return machine{} // signals, users and process groups are those of Unix
	}
	dirs := filepath.SplitList(os.Getenv("PATH"))
	return machine{
		programDirs: append(dirs,
			"/usr/lib/postgresql/*/bin", // Debian, Ubuntu
			"/usr/pgsql-*/bin",          // packages of postgresql.org for Red Hat
			"/opt/homebrew/opt/postgresql*/bin", "/usr/local/opt/postgresql*/bin", "/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
			"/Applications/Postgres.app/Contents/Versions/*/bin",
			"/opt/homebrew/bin", "/opt/homebrew/opt/redis/bin", "/opt/homebrew/opt/valkey/bin", "/home/linuxbrew/.linuxbrew/bin",
			"/usr/local/bin", "/usr/bin", "/usr/sbin",
		),
		spareDir: "/var/lib/forgerun",
	}
}

// computer is the machine that the server runs on.
func (o ServerOptions) computer() machine {
	m := thisMachine()
	if o.machine != nil {
		m = *o.machine
	}
	m.programDirs = append(slices.Clip(m.programDirs), o.Programs)
	return m
}

// find returns the folders that hold all the named programs, best first.
func (m machine) find(names ...string) []string {
	var found []string
	for _, pattern := range m.programDirs {
		// A relative entry would make the result depend on the working folder.
		if !filepath.IsAbs(pattern) {
			continue
		}
		dirs, _ := filepath.Glob(pattern) // fails for bad patterns only
		slices.SortStableFunc(dirs, func(a, b string) int { return cmp.Compare(versionInPath(b), versionInPath(a)) })
		for _, dir := range dirs {
			if !holdsPrograms(dir, names) {
				continue
			}
			if real := realDir(dir, names[0]); holdsPrograms(real, names) {
				dir = real
			}
			if !slices.Contains(found, dir) {
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

// realDir follows a link to the program's real folder: Postgres looks for its share folder next to it, and the link
// may be where the servers' user cannot go. A link to another name (Debian's redis-server) stays: such a program asks
// for the name it was called by.
func realDir(dir, name string) string {
	path, err := filepath.EvalSymlinks(filepath.Join(dir, name))
	if err != nil || filepath.Base(path) != name {
		return dir
	}
	return filepath.Dir(path)
}

var firstNumber = regexp.MustCompile(`[0-9]+`)

// versionInPath returns 17 for ".../17/bin" and ".../postgresql@17/bin", 0 when the folder's name has no number.
func versionInPath(binDir string) int {
	n, _ := strconv.Atoi(firstNumber.FindString(filepath.Base(filepath.Dir(binDir))))
	return n
}

// chooseVersion returns the first of the program folders (bins, not empty) of the major version that made the cluster in
// dataDir: no other can run it, and says so. Where there is no cluster yet, or no such folder, it is the first of all.
func chooseVersion(bins []string, dataDir string) string {
	text, _ := os.ReadFile(filepath.Join(dataDir, "PG_VERSION")) // none: a new cluster
	made, err := strconv.Atoi(strings.TrimSpace(string(text)))
	i := slices.IndexFunc(bins, func(bin string) bool { return err == nil && versionInPath(bin) == made })
	return bins[max(i, 0)]
}

// packages are those that have a server's programs, for each package manager.
type packages struct{ apt, dnf, brew string }

// notInstalled names the command that installs what is missing by this machine's package manager, or those of several.
func (m machine) notInstalled(programs string, p packages) error {
	if runtime.GOOS == "windows" {
		return fmt.Errorf("%s: %w: %w", programs, ErrNotInstalled, errWindows)
	}
	commands := []struct{ manager, command, systems string }{
		{"apt-get", "sudo apt-get install " + p.apt, "Debian, Ubuntu"},
		{"dnf", "sudo dnf install " + p.dnf, "Fedora"},
		{"brew", "brew install " + p.brew, "Homebrew"},
	}
	var all []string
	for _, c := range commands {
		if len(m.find(c.manager)) > 0 {
			all = []string{c.command}
			break
		}
		all = append(all, fmt.Sprintf("%s (%s)", c.command, c.systems))
	}
	return fmt.Errorf("%s: %w. To install it: %s", programs, ErrNotInstalled, strings.Join(all, ", "))
}
