package repo

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// probePatience is how long a scrape waits for Postgres.
const probePatience = time.Second

// probe asks whether Postgres answers. It has a connection of its own, which it
// keeps: neither a full pool nor a server that takes no more connections is an
// outage.
type probe struct {
	config *pgx.ConnConfig

	mu     sync.Mutex
	conn   *pgx.Conn // nil until needed, and after an error
	closed bool
	last   bool      // the latest answer
	at     time.Time // of it
}

// answers reports whether Postgres answers within probePatience. Those who ask
// at the same moment share the answer.
func (p *probe) answers() bool {
	asked := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed && !p.at.After(asked) {
		p.last, p.at = p.ask(), time.Now()
	}
	return p.last
}

// ask tries the connection that there is, and then a new one.
func (p *probe) ask() bool {
	ctx, cancel := context.WithTimeout(context.Background(), probePatience)
	defer cancel()
	if p.conn != nil && p.conn.Ping(ctx) == nil {
		return true
	}
	p.drop(ctx)
	conn, err := pgx.ConnectConfig(ctx, p.config)
	if err != nil {
		return false
	}
	p.conn = conn
	return conn.Ping(ctx) == nil
}

func (p *probe) drop(ctx context.Context) {
	if p.conn != nil {
		_ = p.conn.Close(ctx)
		p.conn = nil
	}
}

// close ends the connection. Whoever asks afterwards hears that Postgres does
// not answer.
func (p *probe) close() {
	ctx, cancel := context.WithTimeout(context.Background(), probePatience)
	defer cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed, p.last = true, false
	p.drop(ctx)
}
