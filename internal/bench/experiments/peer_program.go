package experiments

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/forgerun/forgerun/internal/bench/lab"
)

// buildPeers builds the program of the module in internal/bench/peers.
func buildPeers(ctx context.Context, l *lab.Lab) (path string, err error) {
	path = filepath.Join(l.Dir, "peers")
	return path, lab.Build(ctx, "internal/bench/peers", path, ".")
}

// runPeer takes River or asynq through phases. Those of one string follow each other on
// the same stores; CPU is that of "sustained", with what the servers take.
func runPeer(ctx context.Context, l *lab.Lab, program, name string, runs ...string) (p peer, err error) {
	p = peer{}
	for _, phases := range runs {
		err := l.WithDatabase(ctx, func(d *lab.Database) error {
			address := d.URL
			if name == "asynq" {
				address = l.Servers.Redis.URL()
			}
			before := l.ServersCPU()
			run := exec.CommandContext(ctx, program, append([]string{
				"-jobs", strconv.Itoa(peerJobs), "-producers", strconv.Itoa(peerProducers), "-workers", strconv.Itoa(peerWorkers), name, address,
			}, strings.Fields(phases)...)...)
			var stderr bytes.Buffer
			run.Stderr = &stderr
			out, err := run.Output()
			if err != nil {
				return fmt.Errorf("%s: %w: %s", phases, err, stderr.Bytes())
			}
			return p.read(out, l.ServersCPU()-before)
		})
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

// read takes what the program printed: a line for each phase.
func (p peer) read(out []byte, servers float64) error {
	for lines := json.NewDecoder(bytes.NewReader(out)); lines.More(); {
		var m struct {
			Phase           string
			Jobs, Took, CPU float64
		}
		if err := lines.Decode(&m); err != nil {
			return err
		}
		if p[m.Phase] = m.Jobs / m.Took; m.Phase == "sustained" {
			p["cpu"] = (m.CPU + servers) / (m.Jobs / 1000)
		}
	}
	return nil
}
