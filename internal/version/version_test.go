package version

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

const hash = "0123456789abcdef0123456789abcdef01234567"

func TestRead(t *testing.T) {
	t.Parallel()
	settings := func(modified string) []debug.BuildSetting {
		return []debug.BuildSetting{
			{Key: "vcs.revision", Value: hash}, {Key: "vcs.time", Value: "2026-11-25T12:00:00Z"}, {Key: "vcs.modified", Value: modified},
		}
	}
	for name, test := range map[string]struct {
		linked Info
		build  *debug.BuildInfo
		want   Info
	}{
		"a goreleaser build": {
			linked: Info{Version: "v0.1.0", Commit: hash, Date: "2026-11-25T12:00:00Z"},
			build:  &debug.BuildInfo{Main: debug.Module{Version: "v0.1.0+dirty"}, Settings: settings("true")},
			want:   Info{Version: "v0.1.0", Commit: hash, Date: "2026-11-25T12:00:00Z"},
		},
		"go install of a tag": {
			build: &debug.BuildInfo{Main: debug.Module{Version: "v0.1.0"}},
			want:  Info{Version: "v0.1.0"},
		},
		"go install of a commit": {
			build: &debug.BuildInfo{Main: debug.Module{Version: "v0.1.1-0.20261125120000-0123456789ab"}},
			want:  Info{Version: "v0.1.1-0.20261125120000-0123456789ab", Commit: "0123456789ab", Date: "2026-11-25T12:00:00Z"},
		},
		"go build in a repository without tags": {
			build: &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: settings("false")},
			want:  Info{Version: "dev", Commit: hash, Date: "2026-11-25T12:00:00Z"},
		},
		"go build with changes": {
			build: &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: settings("true")},
			want:  Info{Version: "dev", Commit: hash + "-dirty", Date: "2026-11-25T12:00:00Z"},
		},
		"go build -buildvcs=false": {build: &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, want: Info{Version: "dev"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := read(test.linked, test.build)
			require.NotEmpty(t, got.Go)
			require.Contains(t, got.Platform, "/")
			got.Go, got.Platform = "", ""
			require.Equal(t, test.want, got)
		})
	}
}
