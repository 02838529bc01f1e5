package webhook

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

type canary struct {
	port string
	own  []string
	seen atomic.Int32
	done chan struct{}
}

func newCanary(t *testing.T) *canary {
	t.Helper()
	v4 := must(net.Listen("tcp4", "127.0.0.1:0"))(t)
	_, port, err := net.SplitHostPort(v4.Addr().String())
	require.NoError(t, err)
	c := &canary{port: port, done: make(chan struct{}, 100)}
	c.serve(t, v4)
	if v6, err := net.Listen("tcp6", "[::1]:"+port); err == nil { // not every machine has IPv6
		c.serve(t, v6)
	}
	return c
}

func (c *canary) serve(t *testing.T, l net.Listener) {
	c.own = append(c.own, l.Addr().String())
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.seen.Add(1)
			_ = conn.Close()
			c.done <- struct{}{}
		}
	}()
}

// Listeners accept in order, so the connections that requireUnseen makes come last.
func (c *canary) requireUnseen(t *testing.T) {
	t.Helper()
	for _, address := range c.own {
		conn := must(net.Dial("tcp", address))(t)
		<-c.done
		_ = conn.Close()
	}
	require.EqualValues(t, len(c.own), c.seen.Load(), "the canary was called")
}

func (c *canary) targets() []string {
	targets := trickyURLs(c.port)
	add := func(host string) {
		targets = append(targets, "http://"+host+":"+c.port+"/", "https://"+host+":"+c.port+"/")
	}
	for _, addresses := range forbidden {
		for _, text := range addresses {
			if addr := netip.MustParseAddr(text); addr.Is4() {
				add(text)
			} else {
				add("[" + text + "]")
				add("[" + addr.StringExpanded() + "]")
			}
		}
	}
	for _, host := range append(ipv4Spellings(), trickyHosts...) {
		add(host)
	}
	for _, host := range []string{
		"localhost", "LOCALHOST", "x.localhost", "localhost.localdomain", "ip6-localhost", "canary.example", "127.0.0.1.nip.example",
		"a", "metadata.google.internal", "redis", "xn--e1afmkfd.example", "127-0-0-1.example", "_dmarc.example",
	} {
		add(host)
	}
	return targets
}

func TestNoSpellingReachesTheCanary(t *testing.T) {
	t.Parallel()
	c := newCanary(t)
	s := newSender(t, SenderConfig{Guard: NewGuard(false), Timeout: 10 * time.Second})
	s.dialer.Resolver = resolver(func(string) []netip.Addr { return loopback })
	targets := c.targets()
	require.Greater(t, len(targets), 500)
	sample := sampleParcel(t)
	hosts := map[string]bool{}
	var all sync.WaitGroup
	for _, target := range targets {
		p := sample
		p.Target.URL = target
		all.Go(func() {
			attempt, want := s.Send(t.Context(), p).Attempt, job.SendDNS // the error of a name that does not exist
			if s.cfg.Guard.Check(target) != "" {
				want = job.SendForbidden
			}
			assert.Equal(t, want, attempt.Error, target)
			assert.Zero(t, attempt.Status, target)
		})
		host := strings.TrimSuffix(target[strings.LastIndexByte(target[:len(target)-1], '/')+1:], ":"+c.port+"/")
		if u, err := url.Parse(target); err == nil {
			host = u.Hostname()
		}
		hosts[host] = true
	}
	// Even without Check, the dialer refuses each host.
	for host := range hosts {
		for _, dial := range []func(context.Context, string, string) (net.Conn, error){s.transport.DialContext, s.transport.DialTLSContext} {
			all.Go(func() {
				_, err := dial(t.Context(), "tcp", net.JoinHostPort(host, c.port))
				assert.Error(t, err, host)
			})
		}
	}
	all.Wait()
	c.requireUnseen(t)
}

func TestNameThatResolvesDifferentlyTheSecondTime(t *testing.T) {
	t.Parallel()
	c := newCanary(t)
	var lookups atomic.Int32
	r := resolver(func(string) []netip.Addr {
		if lookups.Add(1) <= 2 { // the first resolution makes two queries (A and AAAA)
			return []netip.Addr{netip.MustParseAddr("93.184.216.34"), netip.MustParseAddr("2606:4700::1111")}
		}
		return loopback
	})
	g := NewGuard(false)
	p := sampleParcel(t)
	p.Target.URL = "http://rebind.example:" + c.port + "/"
	require.Empty(t, g.Check(p.Target.URL))
	first := must(r.LookupNetIP(t.Context(), "ip", "rebind.example"))(t)
	require.NotEmpty(t, first)
	for _, addr := range first {
		require.NoError(t, g.public.SafeAddr(addr.Unmap()), "the first resolution is public")
	}
	s := newSender(t, SenderConfig{Guard: g, Timeout: 10 * time.Second})
	s.dialer.Resolver = r
	require.Equal(t, job.SendDNS, s.Send(t.Context(), p).Attempt.Error)
	require.Greater(t, lookups.Load(), int32(2))
	c.requireUnseen(t)
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	c := newCanary(t)
	var calls atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		w.Header().Set("Location", "http://127.0.0.1:"+c.port+"/")
		status := map[string]int{"/300": 300, "/301": 301, "/302": 302, "/303": 303, "/304": 304, "/307": 307, "/308": 308}[r.URL.Path]
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	s := localSender(t)
	require.Nil(t, s.transport.Proxy)
	for i, path := range []string{"/300", "/301", "/302", "/303", "/304", "/307", "/308"} {
		sent := sendTo(t, s, server.URL+path)
		require.Equal(t, job.SendRedirect, sent.Attempt.Error, path)
		require.Equal(t, path[1:], strconv.Itoa(sent.Attempt.Status))
		require.EqualValues(t, i+1, calls.Load())
	}
	c.requireUnseen(t)
}

var loopback = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")}

// Names without addresses get NXDOMAIN.
func resolver(lookup func(name string) []netip.Addr) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe() // DNS over a stream: messages have a length prefix
		go func() {
			defer server.Close()
			var length [2]byte
			for {
				if _, err := io.ReadFull(server, length[:]); err != nil {
					return
				}
				query := make([]byte, binary.BigEndian.Uint16(length[:]))
				if _, err := io.ReadFull(server, query); err != nil {
					return
				}
				answer := dnsResponse(query, lookup)
				_, _ = server.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
			}
		}()
		return client, nil
	}}
}

// See RFC 1035, section 4.
func dnsResponse(query []byte, lookup func(name string) []netip.Addr) []byte {
	const header, typeA, typeAAAA = 12, 1, 28
	var labels []string
	at := header
	for query[at] != 0 {
		n := int(query[at])
		labels = append(labels, string(query[at+1:at+1+n]))
		at += 1 + n
	}
	question := query[header : at+5]
	kind := binary.BigEndian.Uint16(query[at+1:])
	var records []byte
	count := 0
	addresses := lookup(strings.Join(labels, "."))
	for _, addr := range addresses {
		if addr.Is4() != (kind == typeA) || addr.Is6() != (kind == typeAAAA) {
			continue
		}
		count++
		records = append(records, 0xc0, header, 0, byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(len(addr.AsSlice()))) // name, type, class, TTL, length
		records = append(records, addr.AsSlice()...)
	}
	flags := uint16(0x8180)
	if len(addresses) == 0 {
		flags |= 3 // NXDOMAIN
	}
	answer := append([]byte{}, query[:2]...)
	for _, n := range []uint16{flags, 1, uint16(count), 0, 0} {
		answer = binary.BigEndian.AppendUint16(answer, n)
	}
	return append(append(answer, question...), records...)
}
