// Package dockerfile runs BuildKit's own checks on the Dockerfile, as "docker build --check" does. They need no daemon.
package dockerfile

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/moby/buildkit/client/llb"
	"github.com/moby/buildkit/client/llb/sourceresolver"
	"github.com/moby/buildkit/frontend/dockerfile/dockerfile2llb"
	"github.com/opencontainers/go-digest"
)

// images replaces a registry. The checks only need to know that a base image exists.
type images struct{}

func (images) ResolveImageConfig(_ context.Context, ref string, _ sourceresolver.Opt) (string, digest.Digest, []byte, error) {
	config := []byte(`{"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers"}}`)
	return ref, digest.FromBytes(config), config, nil
}

// findings returns the names of the rules that a file breaks, sorted and without duplicates. It logs the details.
func findings(t *testing.T, path string) (rules []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found, err := dockerfile2llb.DockerfileLint(t.Context(), text, dockerfile2llb.ConvertOpt{
		SourceMap:    &llb.SourceMap{Filename: path, Language: "Dockerfile", Data: text, Definition: &llb.Definition{}},
		MetaResolver: images{},
	})
	if err != nil {
		t.Fatal(err)
	}
	if found.Error != nil {
		t.Fatalf("%s cannot be built: %s", path, found.Error.Message)
	}
	for _, w := range found.Warnings {
		t.Logf("%s: %s: %s", path, w.RuleName, w.Detail)
		rules = append(rules, w.RuleName)
	}
	slices.Sort(rules)
	return slices.Compact(rules)
}

func TestDockerfile(t *testing.T) {
	t.Parallel()
	if rules := findings(t, "../../Dockerfile"); len(rules) > 0 {
		t.Errorf("rules that are broken: %v", rules)
	}
}

// The checks find the mistakes of a bad Dockerfile.
func TestBadDockerfile(t *testing.T) {
	t.Parallel()
	found := findings(t, "testdata/bad.Dockerfile")
	want := []string{
		"ConsistentInstructionCasing", "FromAsCasing", "JSONArgsRecommended", "LegacyKeyValueFormat", "MaintainerDeprecated",
		"MultipleInstructionsDisallowed", "SecretsUsedInArgOrEnv", "StageNameCasing", "UndefinedVar", "WorkdirRelativePath",
	}
	if !slices.Equal(want, found) {
		t.Errorf("found\n%s\nand not\n%s", strings.Join(found, " "), strings.Join(want, " "))
	}
}
