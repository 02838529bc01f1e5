package devstack

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
)

// installation names the packages that have a server's programs.
type installation struct{ debian, fedora, homebrew string }

// notInstalled tells the one command that installs what is missing, or those of several systems where this one is
// none of them.
func (m machine) notInstalled(programs string, i installation) error {
	return fmt.Errorf("devstack: %s: %w. To install it: %s", programs, ErrNotInstalled, i.command(runtime.GOOS, m.families()))
}

func (i installation) command(system string, families []string) string {
	debian, fedora, homebrew := "apt-get install "+i.debian, "dnf install "+i.fedora, "brew install "+i.homebrew
	switch {
	case system == "darwin":
		return homebrew
	case slices.Contains(families, "debian"): // Ubuntu is like it
		return "sudo " + debian
	case slices.Contains(families, "fedora"), slices.Contains(families, "rhel"):
		return "sudo " + fedora
	}
	return fmt.Sprintf("%s (Debian, Ubuntu), %s (Fedora), %s (Homebrew)", debian, fedora, homebrew)
}

// families are the name of this Linux and those that it is like.
func (m machine) families() (names []string) {
	content, _ := os.ReadFile(m.osRelease) // other systems have none
	for line := range strings.Lines(string(content)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if name == "ID" || name == "ID_LIKE" {
			names = append(names, strings.Fields(strings.Trim(value, `"'`))...)
		}
	}
	return names
}
