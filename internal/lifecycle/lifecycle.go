// Package lifecycle starts the parts of a process in order and stops them in
// reverse: one contract for everything that has a goroutine or a connection.
package lifecycle

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// DefaultGrace bounds the stop of a part without its own grace.
const DefaultGrace = 5 * time.Second

// Part is something with a beginning and an end. Stop is called once, and only
// if Start was called and succeeded.
type Part struct {
	Name  string
	Start func(context.Context) error // nil: nothing to begin
	Stop  func(context.Context) error // nil: nothing to end; its context ends with the grace
	Grace time.Duration               // for Stop; DefaultGrace if 0
}

// Loop is a part that runs f in a goroutine. Stop ends f's context and waits.
func Loop(name string, f func(context.Context)) Part {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	return Part{
		Name: name,
		Start: func(context.Context) error {
			go func() {
				defer close(ended)
				f(ctx)
			}()
			return nil
		},
		Stop: func(ctx context.Context) error {
			cancel()
			select {
			case <-ended:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	}
}

// Close is a part that only has an end.
func Close(name string, stop func()) Part {
	return Part{Name: name, Stop: func(context.Context) error { stop(); return nil }}
}

// Group is the started parts of a process. The zero value has none. One goroutine uses it, except Stop, which any goroutine may call, and
// twice.
type Group struct {
	Log *slog.Logger // for parts that did not stop cleanly; nil: slog.Default()

	mu      sync.Mutex
	running []Part
}

// Start begins parts one after the other. When one fails, those before it go
// on running: Stop ends them.
func (g *Group) Start(ctx context.Context, parts ...Part) error {
	for _, p := range parts {
		if p.Start != nil {
			if err := p.Start(ctx); err != nil {
				return err
			}
		}
		g.mu.Lock()
		g.running = append(g.running, p)
		g.mu.Unlock()
	}
	return nil
}

// Stop stops the started parts, the latest first. Each has its own grace, independent of the others. Failures are logged, and the other
// parts are still stopped. A second call, or one before Start, does nothing.
func (g *Group) Stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.running) > 0 {
		p := g.running[len(g.running)-1]
		g.running = g.running[:len(g.running)-1]
		g.stop(p)
	}
}

func (g *Group) stop(p Part) {
	if p.Stop == nil {
		return
	}
	grace := p.Grace
	if grace == 0 {
		grace = DefaultGrace
	}
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		log := g.Log
		if log == nil {
			log = slog.Default()
		}
		log.Warn("a part of the process did not stop cleanly", "action", "stop", "part", p.Name, "error_message", err.Error())
	}
}
