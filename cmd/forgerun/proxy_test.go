package main

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// lossyProxy is a proxy between a process and Postgres. It can lose the response to one statement: the statement commits, then both
// connections break before the process gets the response.
type lossyProxy struct {
	listener net.Listener
	server   string

	mu   sync.Mutex
	lose *execution // lose the response to this execution; nil: lose none
}

// execution identifies the execution of a statement with an argument.
type execution struct {
	statement, argument string // parts of the SQL text and of the argument
	lost                chan struct{}
}

func newLossyProxy(t *testing.T, databaseURL string) *lossyProxy {
	t.Helper()
	u, err := url.Parse(databaseURL)
	require.NoError(t, err)
	p := &lossyProxy{listener: loopback(t), server: u.Host}
	go acceptAll(p.listener, p.serve)
	return p
}

// url returns the URL of the database through the proxy.
func (p *lossyProxy) url(databaseURL string) string {
	u, _ := url.Parse(databaseURL) // newLossyProxy has parsed it
	u.Host = p.listener.Addr().String()
	return u.String()
}

// loseAnswerTo arms the proxy. The returned function waits until the response is lost.
func (p *lossyProxy) loseAnswerTo(statement, argument string) (wait func(*testing.T)) {
	lost := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = &execution{statement, argument, lost}
	return func(t *testing.T) {
		t.Helper()
		select {
		case <-lost:
		case <-time.After(patience):
			require.FailNow(t, "the proxy saw no such statement", "%s with %q", statement, argument)
		}
	}
}

// take disarms the proxy if this is the armed execution.
func (p *lossyProxy) take(sql, bind []byte) (lost chan struct{}, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lose == nil || !bytes.Contains(sql, []byte(p.lose.statement)) || !bytes.Contains(bind, []byte(p.lose.argument)) {
		return nil, false
	}
	lost, p.lose = p.lose.lost, nil
	return lost, true
}

func (p *lossyProxy) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	startup, err := readBody(client, nil)
	if err != nil {
		return
	}
	if _, err := server.Write(startup); err != nil {
		return
	}
	doomed := make(chan chan struct{}, 1)
	go func() {
		defer func() { _ = server.Close() }()
		p.forward(client, server, doomed)
	}()
	relayResponses(server, client, doomed)
}

// forward forwards the client's messages. It marks the connection as doomed when the client executes the statement.
func (p *lossyProxy) forward(client io.Reader, server io.Writer, doomed chan<- chan struct{}) {
	statements := map[string][]byte{} // SQL by name, from Parse messages
	for {
		message, err := readMessage(client)
		if err != nil {
			return
		}
		switch message[0] {
		case 'P':
			name, rest, _ := bytes.Cut(message[5:], []byte{0})
			statements[string(name)] = rest
		case 'B':
			_, rest, _ := bytes.Cut(message[5:], []byte{0}) // the portal
			name, _, _ := bytes.Cut(rest, []byte{0})
			if lost, ok := p.take(statements[string(name)], message); ok {
				doomed <- lost
			}
		}
		if _, err := server.Write(message); err != nil {
			return
		}
	}
}

// relayResponses forwards the server's messages. On a doomed connection, it waits for the statement's commit and returns without forwarding
// the response.
func relayResponses(server io.Reader, client io.Writer, doomed <-chan chan struct{}) {
	for {
		message, err := readMessage(server)
		if err != nil {
			return
		}
		select {
		case lost := <-doomed:
			for err == nil && message[0] != 'Z' { // ReadyForQuery
				message, err = readMessage(server)
			}
			close(lost)
			return
		default:
		}
		if _, err := client.Write(message); err != nil {
			return
		}
	}
}

// readMessage reads a message of the protocol: a type, a length, a body.
func readMessage(r io.Reader) ([]byte, error) {
	kind := make([]byte, 1)
	if _, err := io.ReadFull(r, kind); err != nil {
		return nil, err
	}
	return readBody(r, kind)
}

// readBody reads a length and a body, and puts them behind head.
func readBody(r io.Reader, head []byte) ([]byte, error) {
	length := make([]byte, 4)
	if _, err := io.ReadFull(r, length); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(length)-4)
	_, err := io.ReadFull(r, body)
	return append(append(head, length...), body...), err
}

// relay is a proxy between a process and a server. When it is cut, all connections break, and new ones are refused. When it is stalled, no
// data passes and connections stay open, as when packets are dropped.
type relay struct {
	listener net.Listener
	server   string

	mu      sync.Mutex
	cut     bool
	conns   map[net.Conn]bool
	stalled atomic.Bool
}

func newRelay(t *testing.T, server string) *relay {
	t.Helper()
	w := &relay{listener: loopback(t), server: server, conns: map[net.Conn]bool{}}
	t.Cleanup(func() { w.stalled.Store(false); w.setCut(true) })
	go acceptAll(w.listener, w.serve)
	return w
}

// through returns the address with the relay's host and port.
func (w *relay) through(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	u.Host = w.listener.Addr().String()
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

// keep registers a connection, unless the relay is cut.
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
	go func() {
		defer func() { _, _ = client.Close(), server.Close() }()
		w.pass(client, server)
	}()
	w.pass(server, client)
}

// pass copies the data of one direction.
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

// loopback listens on a free loopback port until the test ends.
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
