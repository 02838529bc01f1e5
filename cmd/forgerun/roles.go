package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"time"
)

// runAPI serves HTTP until ctx ends.
func runAPI(ctx context.Context, cfg Config, unknown []string, _, stderr io.Writer) error {
	p, err := open(cfg, "api", unknown, stderr)
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.startAdmin(); err != nil {
		return err
	}
	a := p.startAPI()
	defer a.stop()
	select {
	case <-ctx.Done():
		p.log.Info("stopping")
		return nil
	case err := <-a.failed:
		return err
	}
}

// runWorker executes jobs until ctx ends.
func runWorker(ctx context.Context, cfg Config, unknown []string, _, stderr io.Writer) error {
	p, err := open(cfg, "worker", unknown, stderr)
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.startAdmin(); err != nil {
		return err
	}
	w, err := p.startWorker()
	if err != nil {
		return err
	}
	defer w.stop()
	<-ctx.Done()
	p.log.Info("stopping")
	return nil
}

// runWebhooks delivers events until ctx ends.
func runWebhooks(ctx context.Context, cfg Config, unknown []string, _, stderr io.Writer) error {
	p, err := open(cfg, "webhooks", unknown, stderr)
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.startAdmin(); err != nil {
		return err
	}
	w, err := p.startWebhooks(ctx)
	if err != nil {
		return unlessStopped(ctx, err)
	}
	defer w.stop()
	<-ctx.Done()
	p.log.Info("stopping")
	return nil
}

// unlessStopped is the error of a start, and nil if that was stopped before it
// was complete.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// runHealthcheck asks a process whether it is ready.
func runHealthcheck(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("healthcheck", flag.ContinueOnError)
	url := flags.String("url", "http://127.0.0.1:8080/readyz", "`address` to ask")
	if code, done := parseFlags(flags, args, stdout, stderr); done {
		return code
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, *url, nil)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "forgerun healthcheck:", err)
		return 2
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "forgerun healthcheck:", err)
		return 1
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		_, _ = fmt.Fprintln(stderr, "forgerun healthcheck: the process answers", response.Status)
		return 1
	}
	return 0
}
