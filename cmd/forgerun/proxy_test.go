package main

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// lossyProxy stands between a process and Postgres. It can lose the answer to
// one statement: the statement is executed and committed, then both
// connections break before the process hears of it.
type lossyProxy struct {
	listener net.Listener
	server   string

	mu     sync.Mutex
	lose   *execution // whose next answer is lost, nil for none
	broken string     // part of the statements that break their connection, "" for none
	hung   string     // part of the statements that are never answered, "" for none
}

// execution is one of a statement with an argument.
type execution struct {
	statement, argument string // a part of each
	lost                chan struct{}
}

func newLossyProxy(t *testing.T, databaseURL string) *lossyProxy {
	t.Helper()
	u, err := url.Parse(databaseURL)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	p := &lossyProxy{listener: l, server: u.Host}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(client)
		}
	}()
	return p
}

// url leads to the database through the proxy.
func (p *lossyProxy) url(databaseURL string) string {
	u, _ := url.Parse(databaseURL) // it was parsed before
	u.Host = p.listener.Addr().String()
	return u.String()
}

// loseAnswerTo arms the proxy. The function that it returns waits until the
// answer is lost.
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

// take disarms the proxy if the execution is the one that it waits for.
func (p *lossyProxy) take(sql, bind []byte) (lost chan struct{}, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lose == nil || !bytes.Contains(sql, []byte(p.lose.statement)) || !bytes.Contains(bind, []byte(p.lose.argument)) {
		return nil, false
	}
	lost, p.lose = p.lose.lost, nil
	return lost, true
}

// breakOn breaks each connection that executes such a statement, from now on.
func (p *lossyProxy) breakOn(marker string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = marker
}

// hangOn leaves each such statement without an answer, from now on.
func (p *lossyProxy) hangOn(marker string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hung = marker
}

// obstructs reports whether a statement breaks its connection, or hangs.
func (p *lossyProxy) obstructs(sql []byte) (breaks, hangs bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	is := func(marker string) bool { return marker != "" && bytes.Contains(sql, []byte(marker)) }
	return is(p.broken), is(p.hung)
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
	relayAnswers(server, client, doomed)
}

// forward passes on what the client says, and dooms the connection when it
// executes the statement.
func (p *lossyProxy) forward(client io.Reader, server io.Writer, doomed chan<- chan struct{}) {
	statements := map[string][]byte{} // SQL by name, from Parse messages
	for {
		message, err := readMessage(client)
		if err != nil {
			return
		}
		var sql []byte // that is executed
		switch message[0] {
		case 'Q':
			sql = message[5:]
		case 'P':
			name, rest, _ := bytes.Cut(message[5:], []byte{0})
			statements[string(name)] = rest
		case 'B':
			_, rest, _ := bytes.Cut(message[5:], []byte{0}) // the portal
			name, _, _ := bytes.Cut(rest, []byte{0})
			if lost, ok := p.take(statements[string(name)], message); ok {
				doomed <- lost
			}
			sql = statements[string(name)]
		}
		if breaks, hangs := p.obstructs(sql); breaks {
			return
		} else if hangs {
			_, _ = io.Copy(io.Discard, client) // until the process gives up
			return
		}
		if _, err := server.Write(message); err != nil {
			return
		}
	}
}

// relayAnswers passes on what the server says. On a doomed connection it waits for
// the statement's commit, says nothing of it and returns.
func relayAnswers(server io.Reader, client io.Writer, doomed <-chan chan struct{}) {
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

// wire stands between a process and a server, and can be cut.
type wire struct {
	listener net.Listener
	server   string

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool
}

func newWire(t *testing.T, server string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &wire{listener: l, server: server, conns: map[net.Conn]bool{}}
	t.Cleanup(func() { _ = l.Close(); w.setCut(true) })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go w.serve(client)
		}
	}()
	return w
}

// setCut breaks all connections and refuses new ones, or lets them through again.
func (w *wire) setCut(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	for c := range w.conns {
		if cut {
			_ = c.Close()
		}
	}
}

// keep notes a connection, unless the wire is cut.
func (w *wire) keep(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.cut {
		w.conns[c] = true
	}
	return !w.cut
}

func (w *wire) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	if !w.keep(client) {
		return
	}
	server, err := net.Dial("tcp", w.server)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	go func() {
		defer func() { _ = server.Close() }()
		_, _ = io.Copy(server, client)
	}()
	_, _ = io.Copy(client, server)
}
