// Command picture makes the moving picture of the README: it starts the service, runs the scenes' commands in terminals, kills a
// worker, and draws what the programs printed meanwhile. "make picture" runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/forgerun/forgerun/internal/stack"
)

const (
	workers = 2
	// timeScale makes SUCCESS_SLOW, which takes 90 s, a matter of seconds.
	timeScale = 0.05
	judge     = "forgerun verdict --profile overloaded -- python3 "

	label = "A terminal session: a job is submitted and watched. While it is RUNNING, its worker is killed with kill -9. " +
		"The job's attempt fails when the worker's lease is over, the next one is given to another worker and succeeds. " +
		"Then a client is judged while it is told to come later: it is wrong. When it is mended it is judged again: it is not wrong."
	note = "a real run; pauses are cut"
)

func main() {
	out := flag.String("out", "docs/images/survives.svg", "`file` to write")
	bin := flag.String("bin", "bin", "`folder` of forgerun")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *bin, *out); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bin, out string) (err error) {
	if bin, err = filepath.Abs(bin); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "forgerun-picture-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fmt.Println("Starting a service")
	s, err := stack.Start(ctx, stack.Options{Forgerun: filepath.Join(bin, "forgerun"), Dir: dir, Workers: workers, TimeScale: timeScale})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	_, key, err := stack.Register(ctx, s.URL())
	if err != nil {
		return err
	}
	r := newRecorder(dir, environ(bin, "FORGERUN_URL="+s.URL(), "FORGERUN_API_KEY="+key, "HOME="+dir))
	if err := play(ctx, r, s); err != nil {
		return err
	}
	drawn, err := svg(r.film, label, note)
	if err != nil {
		return err
	}
	fmt.Printf("%s: %.1f s, %d KB\n", out, r.film.length.Seconds(), len(drawn)/1024)
	return os.WriteFile(out, []byte(drawn), 0o644)
}

// play runs the scenes. It stops the service before the verdicts, which have services of their own.
func play(ctx context.Context, r *recorder, s *stack.Stack) error {
	fmt.Println("A job survives its worker")
	if err := r.run(ctx, top, "forgerun jobs submit SUCCESS_SLOW --auto-retry"); err != nil {
		return err
	}
	id, err := r.await(ctx, `(?m)^([0-9a-f-]{36})`)
	if err != nil {
		return err
	}
	watched := make(chan error, 1)
	go func() { watched <- r.run(ctx, top, "forgerun jobs watch "+id[1]) }()
	if _, err := r.await(ctx, `RUNNING \[#+\.+\] +[1-9]0%`); err != nil {
		return err
	}
	pid, err := holder(ctx, r, s)
	if err != nil {
		return err
	}
	if err := r.run(ctx, low, "kill -9 "+pid+"   # the worker that runs the job"); err != nil {
		return err
	}
	if err := <-watched; err != nil { // it exits with 0 only if the job succeeded
		return err
	}
	if _, err := r.await(ctx, `job-failed .* attempt 1 (?s:.*)job-succeeded .* attempt 2`); err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	fmt.Println("A client is judged, mended and judged again")
	if err := os.CopyFS(r.dir, os.DirFS(filepath.Join("examples", "tutorial"))); err != nil {
		return err
	}
	r.print(top, []byte("\r\n"), time.Now())
	err = r.run(ctx, top, judge+"orders.py")
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
		return fmt.Errorf("the client with mistakes is not judged wrong: %w", err)
	}
	if _, err := r.await(ctx, "The client is wrong"); err != nil {
		return err
	}
	time.Sleep(longest)
	r.print(top, []byte("\r\n"), time.Now())
	if err := r.run(ctx, top, judge+"orders_fixed.py"); err != nil {
		return err
	}
	_, err = r.await(ctx, "The client is not wrong")
	return err
}

// holder is the process id of the worker that has the job.
func holder(ctx context.Context, r *recorder, s *stack.Stack) (pid string, err error) {
	admin, err := url.Parse(s.MetricsURLs()[0])
	if err != nil {
		return "", err
	}
	const ask = `forgerun admin workers --admin-url "$0" -o go-template='{{.held}} {{.name}}'`
	cmd := exec.CommandContext(ctx, "sh", "-c", ask, "http://"+admin.Host)
	cmd.Env = r.env
	list, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, list)
	}
	for line := range strings.Lines(string(list)) {
		if held, name, _ := strings.Cut(strings.TrimSpace(line), " "); held == "1" {
			return name[strings.LastIndex(name, "/")+1:], nil
		}
	}
	return "", fmt.Errorf("no worker has the job:\n%s", list)
}
