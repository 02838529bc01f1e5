// Package version describes the build of the running program.
//
// In a release build, the linker sets the version:
//
//	-ldflags "-X github.com/forgerun/forgerun/internal/version.number=v0.1.0
//	  -X github.com/forgerun/forgerun/internal/version.commit=SHA
//	  -X github.com/forgerun/forgerun/internal/version.date=2026-11-25T12:00:00Z"
//
// Without these settings, the Go tool's build information is used. So "go install .../cmd/forgerun@latest" has a version too.
package version

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"golang.org/x/mod/module"
)

var number, commit, date string

const unreleased = "dev"

// Info is one build.
type Info struct {
	// Version is a tag such as "v0.1.0", a pseudo-version, the output of "git
	// describe" for a commit between two tags, or "dev".
	Version string `json:"version"`
	// Commit is the commit's hash, with "-dirty" if files had uncommitted changes; "" if unknown. The hash of a pseudo-version has only 12
	// digits.
	Commit string `json:"commit"`
	// Date is the time of the commit, in RFC 3339; "" if unknown.
	Date string `json:"date"`
	// Go is the version of the Go compiler.
	Go string `json:"go"`
	// Platform is the system and architecture, such as "linux/amd64".
	Platform string `json:"platform"`
}

// Get returns the build of the running program.
func Get() Info {
	build, _ := debug.ReadBuildInfo() // nil if there is none
	return read(Info{Version: number, Commit: commit, Date: date}, build)
}

// Number returns only the version.
func Number() string { return Get().Version }

// read returns the linker's values. Missing values come from `build`.
func read(linked Info, build *debug.BuildInfo) Info {
	info := Info{Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if build != nil {
		info = recorded(info, build)
	}
	info.Version = cmp.Or(linked.Version, info.Version, unreleased)
	info.Commit = cmp.Or(linked.Commit, info.Commit)
	info.Date = cmp.Or(linked.Date, info.Date)
	return info
}

// recorded sets the version from the Go tool's build information. It also sets the commit and its date, if they are known.
func recorded(info Info, build *debug.BuildInfo) Info {
	if version := build.Main.Version; version != "(devel)" {
		info.Version = version
	}
	if module.IsPseudoVersion(info.Version) {
		info.Commit, _ = module.PseudoVersionRev(info.Version)
		if at, err := module.PseudoVersionTime(info.Version); err == nil {
			info.Date = at.Format("2006-01-02T15:04:05Z")
		}
	}
	settings := map[string]string{}
	for _, setting := range build.Settings {
		settings[setting.Key] = setting.Value
	}
	if revision := settings["vcs.revision"]; revision != "" {
		info.Commit, info.Date = revision, settings["vcs.time"]
		if settings["vcs.modified"] == "true" {
			info.Commit += "-dirty"
		}
	}
	return info
}

// Line returns the build on one line: "forgerun v0.1.0 (commit 0123..., 2026-11-25T12:00:00Z, go1.26.8, linux/amd64)".
func (i Info) Line(program string) string {
	return fmt.Sprintf("%s %s (commit %s, %s, %s, %s)", program, i.Version, cmp.Or(i.Commit, "unknown"), cmp.Or(i.Date, "date unknown"),
		i.Go, i.Platform)
}
