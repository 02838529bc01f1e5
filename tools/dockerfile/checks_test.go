// Package dockerfile runs BuildKit's own checks on the Dockerfile, as "docker build --check" does. The checks need no daemon.
package dockerfile

import (
	"context"
	"os"
	"testing"

	"github.com/moby/buildkit/client/llb"
	"github.com/moby/buildkit/client/llb/sourceresolver"
	"github.com/moby/buildkit/frontend/dockerfile/dockerfile2llb"
	"github.com/opencontainers/go-digest"
)

// images stands for a registry in which every base image exists.
type images struct{}

func (images) ResolveImageConfig(_ context.Context, ref string, _ sourceresolver.Opt) (string, digest.Digest, []byte, error) {
	config := []byte(`{"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers"}}`)
	return ref, digest.FromBytes(config), config, nil
}

func TestDockerfile(t *testing.T) {
	t.Parallel()
	const path = "../../Dockerfile"
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
		t.Errorf("%s: %s: %s", path, w.RuleName, w.Detail)
	}
}
