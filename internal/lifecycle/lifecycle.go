// Package lifecycle starts the parts of a process in order and stops them in reverse order. A Part is a component that runs a goroutine or
// holds a connection.
package lifecycle

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// DefaultGrace is the limit of Part.Stop if Part.Grace is 0.
const DefaultGrace = 5 * time.Second

// Part is a component of a process. Group calls Stop once, and only if Start succeeded.
type Part struct {
	Name  string
	Start func(context.Context) error // nil: nothing to start
	Stop  func(context.Context) error // nil: nothing to stop; its context ends after Grace
	Grace time.Duration               // limit of Stop; DefaultGrace if 0
}

// Loop returns a part that runs f in a goroutine. Stop cancels the context of f and waits until f returns.
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

// Close returns a part that calls `stop` when the group stops.
func Close(name string, stop func()) Part {
	return Part{Name: name, Stop: func(context.Context) error { stop(); return nil }}
}

// Group holds the started parts of a process. The zero value is empty. Only one goroutine may call Start. Any goroutine may call Stop,
// even several times.
type Group struct {
	Log *slog.Logger // for errors of Stop; nil: slog.Default()

	mu      sync.Mutex
	running []Part
}

// Start starts parts one after the other. If a part fails, Start returns the error. The parts that have already started run until Stop.
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

// Stop stops the started parts, the latest first. Stop logs failures and still stops the other parts. A second call does nothing, and so
// does a call before Start.
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
