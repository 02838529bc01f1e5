package main

import (
	"context"
	"io"
)

// runAPI serves HTTP until ctx ends.
func runAPI(ctx context.Context, cfg Config, unknown []string, _, stderr io.Writer) error {
	return serveRole(ctx, cfg, "api", unknown, stderr, func(p *process) (<-chan error, error) {
		a, err := p.startAPI(ctx)
		if err != nil {
			return nil, err
		}
		return a.failed, nil
	})
}

// runWorker executes jobs until ctx ends.
func runWorker(ctx context.Context, cfg Config, unknown []string, _, stderr io.Writer) error {
	return serveRole(ctx, cfg, "worker", unknown, stderr, func(p *process) (<-chan error, error) { return nil, p.startWorker(ctx) })
}

// runWebhooks delivers events until ctx ends.
func runWebhooks(ctx context.Context, cfg Config, unknown []string, _, stderr io.Writer) error {
	return serveRole(ctx, cfg, "webhooks", unknown, stderr, func(p *process) (<-chan error, error) { return nil, p.startWebhooks(ctx) })
}

// serveRole opens a process, starts what its role adds, and runs it until ctx ends or
// something that it cannot go on without has failed. A start that is stopped
// before it is complete is no error.
func serveRole(
	ctx context.Context, cfg Config, role string, unknown []string, stderr io.Writer, start func(*process) (failed <-chan error, err error),
) error {
	p, err := open(cfg, role, unknown, stderr)
	if err != nil {
		return err
	}
	defer p.close()
	failed, err := start(p)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	select {
	case <-ctx.Done():
		p.log.Info("stopping")
		return nil
	case err := <-failed:
		return err
	}
}
