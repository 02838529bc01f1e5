package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/forgerun/forgerun/internal/process"
)

const (
	// ReadyWithin bounds the start of a program.
	ReadyWithin = 20 * time.Second
	stopGrace   = 2 * time.Minute
	keptLog     = 64 << 10 // bytes
)

var errAddressTaken = errors.New("another process took the address")

// Program is a child process. Only the beginning of its log is kept: the CPU time
// for more would be taken for the program's own.
type Program struct {
	*process.Process
	path string
	mu   sync.Mutex
	head bytes.Buffer
}

// Launch starts a program.
func Launch(path string, env []string, args ...string) (*Program, error) {
	p := &Program{path: path}
	c := process.Command{Path: path, Args: args, Env: append(os.Environ(), env...), Output: p, DeathSignal: syscall.SIGKILL}
	var err error
	if p.Process, err = process.Start(c); err != nil {
		return nil, err
	}
	return p, nil
}

// Write takes the program's log.
func (p *Program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.head.Len() < keptLog {
		p.head.Write(b)
	}
	return len(b), nil
}

func (p *Program) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.head.String()
}

// Until waits for the program to be ready. One that is not in time is killed.
func (p *Program) Until(ctx context.Context, ready func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, ReadyWithin)
	defer cancel()
	err := p.Await(ctx, func(context.Context) (bool, error) { return ready(), nil })
	if err == nil {
		return nil
	}
	p.Kill()
	if strings.Contains(p.log(), "address already in use") {
		return errAddressTaken
	}
	return fmt.Errorf("%s did not get ready: %w; its log:\n%s", p.path, err, p.log())
}

// Logged waits for a line of the log and gives the first group of the pattern.
func (p *Program) Logged(ctx context.Context, pattern string) (string, error) {
	expression := regexp.MustCompile(pattern)
	var found []string
	err := p.Until(ctx, func() bool {
		found = expression.FindStringSubmatch(p.log())
		return found != nil
	})
	if err != nil {
		return "", err
	}
	return found[1], nil
}

// Stop ends the program and waits for it; nil is no program.
func (p *Program) Stop() error {
	if p == nil {
		return nil
	}
	return p.Process.Stop(stopGrace)
}
