package main

import (
	"bytes"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"
)

// lossyProxy is a relay to Postgres. It can lose one response: the statement commits, but the connections break before the response
// arrives.
type lossyProxy struct {
	relay
	lose atomic.Pointer[execution] // nil: lose no response
}

type execution struct {
	statement, argument string // texts that the SQL and its arguments must contain
	lost                atomic.Bool
}

func newLossyProxy(t *testing.T, databaseURL string) *lossyProxy {
	t.Helper()
	p := &lossyProxy{}
	p.listen(t, hostOf(t, databaseURL), p.forward)
	return p
}

// loseAnswerTo makes the proxy lose the response to the next statement with this text and argument. Call `wait` to
// block until the response is lost.
func (p *lossyProxy) loseAnswerTo(statement, argument string) (wait func(*testing.T)) {
	e := &execution{statement: statement, argument: argument}
	p.lose.Store(e)
	return func(t *testing.T) {
		t.Helper()
		eventually(t, "the proxy loses the response to "+statement+" with "+argument, e.lost.Load)
	}
}

// take returns the planned loss if this statement matches it, and clears the plan.
func (p *lossyProxy) take(sql string, arguments [][]byte) (e *execution, ok bool) {
	e = p.lose.Load()
	return e, e != nil && strings.Contains(sql, e.statement) && bytes.Contains(bytes.Join(arguments, nil), []byte(e.argument)) &&
		p.lose.CompareAndSwap(e, nil)
}

// forward copies messages both ways. To lose a response, forward waits until the statement has ended. It then closes the connections
// without forwarding the response.
func (p *lossyProxy) forward(client, server net.Conn) {
	fromClient, fromServer := pgproto3.NewBackend(client, client), pgproto3.NewFrontend(server, server)
	startup, err := fromClient.ReceiveStartupMessage()
	if err != nil {
		return
	}
	fromServer.Send(startup)
	doomed := make(chan *execution, 1)
	go func() {
		defer func() { _ = server.Close() }()
		statements := map[string]string{} // SQL text by name of the prepared statement
		for fromServer.Flush() == nil {
			message, err := fromClient.Receive()
			if err != nil {
				return
			}
			switch m := message.(type) {
			case *pgproto3.Parse:
				statements[m.Name] = m.Query
			case *pgproto3.Bind:
				if e, ok := p.take(statements[m.PreparedStatement], m.Parameters); ok {
					doomed <- e
				}
			}
			fromServer.Send(message)
		}
	}()
	for fromClient.Flush() == nil {
		message, err := fromServer.Receive()
		select {
		case e := <-doomed:
			for _, ready := message.(*pgproto3.ReadyForQuery); err == nil && !ready; _, ready = message.(*pgproto3.ReadyForQuery) {
				message, err = fromServer.Receive()
			}
			e.lost.Store(true)
			return
		default:
		}
		if err != nil || fromClient.SetAuthType(fromServer.GetAuthType()) != nil { // pgproto3 needs the type to parse the client's next message
			return
		}
		fromClient.Send(message)
	}
}

// relay is a proxy between a process and a server. When it is cut, all connections break, and new ones are refused. When it is stalled,
// connections stay open but carry no data, like a network that drops packets.
type relay struct {
	address, server string
	join            func(client, server net.Conn) // copies data until one side ends

	mu      sync.Mutex
	cut     bool
	conns   map[net.Conn]bool
	stalled atomic.Bool
}

func newRelay(t *testing.T, server string) *relay {
	t.Helper()
	w := &relay{}
	w.listen(t, server, w.copy)
	return w
}

func (w *relay) listen(t *testing.T, server string, join func(client, server net.Conn)) {
	t.Helper()
	l := loopback(t)
	w.address, w.server, w.join, w.conns = l.Addr().String(), server, join, map[net.Conn]bool{}
	t.Cleanup(func() { w.stalled.Store(false); w.setCut(true) })
	go acceptAll(l, w.serve)
}

func (w *relay) through(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	u.Host = w.address
	return u.String()
}

func (w *relay) setCut(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	for c := range w.conns {
		if cut {
			_ = c.Close()
		}
	}
}

func (w *relay) keep(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.cut {
		w.conns[c] = true
	}
	return !w.cut
}

func (w *relay) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	w.wait()
	if !w.keep(client) {
		return
	}
	server, err := net.Dial("tcp", w.server)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	w.join(client, server)
}

func (w *relay) copy(client, server net.Conn) {
	go func() {
		defer func() { _, _ = client.Close(), server.Close() }()
		w.pass(client, server)
	}()
	w.pass(server, client)
}

func (w *relay) pass(to io.Writer, from io.Reader) {
	piece := make([]byte, 64<<10)
	for {
		n, err := from.Read(piece)
		w.wait()
		if _, failed := to.Write(piece[:n]); err != nil || failed != nil {
			return
		}
	}
}

func (w *relay) wait() {
	for w.stalled.Load() {
		time.Sleep(10 * time.Millisecond)
	}
}

func hostOf(t *testing.T, text string) string {
	t.Helper()
	u, err := url.Parse(text)
	require.NoError(t, err)
	return u.Host
}

func loopback(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func acceptAll(l net.Listener, serve func(net.Conn)) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go serve(conn)
	}
}
