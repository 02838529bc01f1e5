package pg

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// probeTimeout is how long a scrape waits for Postgres.
const probeTimeout = time.Second

// probe checks whether Postgres answers. It has its own connection, because an exhausted pool does not mean that Postgres is down.
type probe struct {
	mu     sync.Mutex
	own    OwnConn
	closed bool
	last   bool
	at     time.Time // time of the latest check
}

// answers reports whether Postgres answers within probeTimeout. Concurrent callers share the result.
func (p *probe) answers() bool {
	asked := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed && !p.at.After(asked) {
		p.last, p.at = p.ask(), time.Now()
	}
	return p.last
}

func (p *probe) ask() bool {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	for range 2 {
		conn, err := p.own.Open(ctx)
		if err != nil {
			return false
		}
		if conn.Ping(ctx) == nil {
			return true
		}
		p.own.Drop()
	}
	return false
}

func (p *probe) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed, p.last = true, false
	p.own.Drop()
}

// OwnConn is a connection outside of the pool. Its owner guards it with a mutex.
type OwnConn struct {
	config *pgx.ConnConfig
	conn   *pgx.Conn
}

// NewOwnConn makes a connection with the settings of the pool.
func (d *DB) NewOwnConn() OwnConn { return OwnConn{config: d.probe.own.config} }

// Open returns the connection, and connects if there is none.
func (c *OwnConn) Open(ctx context.Context) (conn *pgx.Conn, err error) {
	if c.conn == nil || c.conn.IsClosed() {
		c.conn, err = pgx.ConnectConfig(ctx, c.config)
	}
	return c.conn, err
}

// Drop ends the connection, if there is one. The next Open connects again.
func (c *OwnConn) Drop() {
	if c.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.conn.Close(ctx)
		c.conn = nil
	}
}
