package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"syscall"
	"time"
)

// Program is a child process. The beginning of its log is kept; reading the rest
// must cost next to nothing, since it would be taken for the program's own cost.
type Program struct {
	cmd  *exec.Cmd
	mu   sync.Mutex
	head bytes.Buffer

	Running context.Context // ends before the program is signaled to
	end     context.CancelFunc
}

// Launch starts a program.
func Launch(path string, env []string, args ...string) (*Program, error) {
	p := &Program{cmd: exec.Command(path, args...)}
	p.Running, p.end = context.WithCancel(context.Background())
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = append(os.Environ(), env...), p, p
	if err := p.cmd.Start(); err != nil {
		p.end()
		return nil, err
	}
	return p, nil
}

// Write takes the program's log.
func (p *Program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.head.Len() < 64<<10 {
		p.head.Write(b)
	}
	return len(b), nil
}

// ReadyWithin bounds the start of a program.
const ReadyWithin = 20 * time.Second

// Until waits for the program to be ready.
func (p *Program) Until(ready func() bool) error {
	for limit := time.Now().Add(ReadyWithin); !ready(); time.Sleep(PollInterval) {
		if p.said("address already in use") {
			return errAddressTaken
		}
		if time.Now().After(limit) {
			return p.Late()
		}
	}
	return nil
}

var errAddressTaken = errors.New("another process took the address")

func (p *Program) said(words string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Contains(p.head.Bytes(), []byte(words))
}

// Late is the error of a program that did not get ready; it has the log.
func (p *Program) Late() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Errorf("%s did not get ready; its log:\n%s", p.cmd.Path, p.head.String())
}

// Await waits for a line of the log and gives the first group of the pattern.
func (p *Program) Await(pattern string) (string, error) {
	expression := regexp.MustCompile(pattern)
	var found []string
	err := p.Until(func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		found = expression.FindStringSubmatch(p.head.String())
		return found != nil
	})
	if err != nil {
		return "", err
	}
	return found[len(found)-1], nil
}

// PID is 0 for no program.
func (p *Program) PID() int {
	if p == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// Stop ends the program and waits for it; nil is no program.
func (p *Program) Stop() error {
	if p == nil {
		return nil
	}
	p.end()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return p.cmd.Wait()
}
