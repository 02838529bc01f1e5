package judge

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/history"
)

// Account is a tenant of the run.
type Account struct {
	Tenant   int
	ClientID string // "" when its key was given: what else its client has is not looked at
	Client   *client.Client
}

// Subject is what is asked at the end of a run. What is not given is not asked
// for, and the verdict says so.
type Subject struct {
	Run      string
	Since    time.Time // of the first submission; zero: lists are read to their end
	Accounts []Account

	DatabaseURL, RedisURL string
	MetricsURLs           []string // of all processes of the service

	// Counters: what the processes have counted can be compared with the rows.
	// Without it only gauges are: see Ground.
	Counters bool

	// SampleReports is of how many jobs the reports, results and deliveries are
	// read over HTTP. The lists have all jobs.
	SampleReports int
	Seed          uint64
	// WorkKind limits the lists to one kind; "": all.
	WorkKind string
	// DeliveryLogs: each delivery of the sample is read by itself, with its tries.
	DeliveryLogs bool

	// Patience is how long the queue may take to come to rest, and metrics to
	// follow the rows. 0: 15 s.
	Patience time.Duration
	Progress func(stage string, done int64) // may be nil; called by several goroutines
}

// stranger is the tenant of rows whose client is none of the run's.
const stranger = math.MaxInt32

// collector is one Collect under way.
type collector struct {
	Subject
	out   interface{ Add(history.Fact) }
	added atomic.Int64
	found Collected

	asOf    time.Time      // what the rows tell is as of then, by Postgres' clock
	tenants map[string]int // by client id
	shared  int            // the tenant whose key was given, -1 for none
}

// Collect asks the API, the rows, the queue and the metrics, and adds what they
// say to the history. A source that does not answer, or not to its end, is told
// in Collected; the error is only ever the context's.
func Collect(ctx context.Context, s Subject, out interface{ Add(history.Fact) }) (Collected, error) {
	c := &collector{Subject: s, out: out, tenants: map[string]int{}, shared: -1}
	c.Patience = orDefault(s.Patience, 15*time.Second)
	c.found = Collected{Asked: map[Source]bool{}, Missing: map[Source]string{}, Webhooks: map[string]time.Time{}}
	for _, a := range s.Accounts {
		if a.ClientID == "" {
			c.shared = a.Tenant
		} else {
			c.tenants[a.ClientID] = a.Tenant
		}
	}
	var sample []sampled
	c.ask(Lists, len(s.Accounts) > 0, func() (err error) { sample, err = c.lists(ctx); return err })
	c.ask(Reports, len(s.Accounts) > 0 && s.SampleReports > 0, func() error { return c.reports(ctx, sample) })
	c.ask(Rows, s.DatabaseURL != "", func() error { return c.rows(ctx) })
	c.ask(Queue, s.RedisURL != "", func() error { return c.queue(ctx) })
	c.ask(Metrics, len(s.MetricsURLs) > 0 && s.DatabaseURL != "", func() error { return c.metrics(ctx) })
	c.found.Facts = c.added.Load()
	return c.found, context.Cause(ctx)
}

func (c *collector) ask(s Source, given bool, do func() error) {
	if !given {
		return
	}
	c.found.Asked[s] = true
	if err := do(); err != nil {
		c.found.Missing[s] = reason(err)
	}
}

// reason is an error's text without what may be secret in it.
func reason(err error) string {
	if errors.Is(err, context.Canceled) {
		return "the collecting was interrupted"
	}
	return printable(err.Error())
}

func (c *collector) add(f history.Fact) {
	if f.At.IsZero() {
		f.At = time.Now().UTC()
	}
	c.added.Add(1)
	c.out.Add(f)
}

func (c *collector) progress(stage string, done int64) {
	if c.Progress != nil {
		c.Progress(stage, done)
	}
}

// tenantOf gives whose a client id is.
func (c *collector) tenantOf(clientID string) int {
	if tenant, ok := c.tenants[clientID]; ok {
		return tenant
	}
	if c.shared >= 0 {
		return c.shared
	}
	return stranger
}

// clientIDs are those that the run made itself: all they have is the run's.
func (c *collector) clientIDs() []string {
	ids := make([]string, 0, len(c.tenants))
	for id := range c.tenants {
		ids = append(ids, id)
	}
	return ids
}

func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
