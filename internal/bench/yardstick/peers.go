package yardstick

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/forgerun/forgerun/internal/bench/lab"
)

// PeerJobs, PeerProducers and PeerWorkers are of every system that is compared; each job has PeerPayload.
const (
	PeerJobs       = 20_000
	PeerProducers  = 32
	PeerWorkers    = 100
	BatchSize      = 1000
	BatchProducers = 4
)

// PeerPayload is what the job is about, 150 bytes.
var PeerPayload = strings.Repeat("x", 150)

// Measured is what one phase took.
type Measured struct {
	Phase string  `json:"phase"`
	Jobs  int     `json:"jobs"`
	Took  float64 `json:"took"` // seconds
	CPU   float64 `json:"cpu"`  // seconds, of all processes, those that submit included
}

// Rate is per second.
func (m Measured) Rate() float64 { return float64(m.Jobs) / m.Took }

// CPUPerThousand is seconds for 1,000 jobs.
func (m Measured) CPUPerThousand() float64 { return m.CPU / (float64(m.Jobs) / 1000) }

// BuildPeers builds the program of the module beside this one.
func BuildPeers(ctx context.Context, l *lab.Lab) (path string, err error) {
	path = filepath.Join(l.Dir, "peers")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	here, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", "github.com/forgerun/forgerun/internal/bench").Output()
	if err != nil {
		return "", fmt.Errorf("go list: %w", err)
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", path, ".")
	build.Dir = filepath.Join(strings.TrimSpace(string(here)), "peers")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build of the peers: %w: %s", err, out)
	}
	return path, nil
}

// Peer takes River or asynq through phases, one after the other, on stores of its own. Programs of
// a phase run for themselves, so that what the servers use can be told from the phase before.
func Peer(ctx context.Context, l *lab.Lab, program, name string, phases ...string) (measured []Measured, err error) {
	d, err := l.NewDatabase(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.Drop(context.WithoutCancel(ctx), d) }()
	address := d.URL
	if name == "asynq" {
		address = d.RedisURL
	}
	postgres, redis := l.ServersCPU()
	run := exec.CommandContext(ctx, program, append([]string{
		"-jobs", strconv.Itoa(l.Options.Jobs(PeerJobs)), "-producers", strconv.Itoa(PeerProducers), "-workers", strconv.Itoa(PeerWorkers),
		name, address,
	}, phases...)...)
	var stderr bytes.Buffer
	run.Stderr = &stderr
	out, err := run.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", name, err, stderr.Bytes())
	}
	postgresAfter, redisAfter := l.ServersCPU()
	for lines := json.NewDecoder(bytes.NewReader(out)); lines.More(); {
		var m Measured
		if err := lines.Decode(&m); err != nil {
			return nil, err
		}
		measured = append(measured, m)
	}
	if len(measured) != len(phases) {
		return nil, fmt.Errorf("%s printed %d of %d phases", name, len(measured), len(phases))
	}
	if len(phases) == 1 { // what the servers used is that phase's
		measured[0].CPU += postgresAfter - postgres + redisAfter - redis
	}
	return measured, nil
}
