package tasks

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/devstack"
	"github.com/forgerun/forgerun/job"
)

// requireAllWorks uses everything that this package does with Redis.
func requireAllWorks(t *testing.T, url string) {
	t.Helper()
	ctx := t.Context()
	r := connect(t, url)
	q := startQueue(t, r, QueueConfig{})
	eventually(t, func() bool { return q.Ping(ctx) == nil })
	require.NoError(t, q.SetEpoch(ctx, 4))
	epoch, runID := epochOf(t, q)
	require.Equal(t, int64(4), epoch)
	for range 20 {
		_, again := epochOf(t, q)
		require.Equal(t, runID, again, "always of the same server")
	}

	ts := newTasks(300)
	missing, err := q.Missing(ctx, ts)
	require.NoError(t, err)
	require.Equal(t, ts, missing)
	dispatchAll(t, q, ts...)
	answers, err := q.Dispatch(ctx, ts[:1])
	require.NoError(t, err)
	require.Equal(t, []job.Dispatched{job.TaskPresent}, answers)
	missing, err = q.Missing(ctx, ts)
	require.NoError(t, err)
	require.Empty(t, missing)
	depth, err := q.Depth(ctx)
	require.NoError(t, err)
	require.Equal(t, int64(300), depth["pending"])

	late := newTask()
	q.Enqueue(late)
	var c collector
	startWorkers(t, r, WorkersConfig{Concurrency: 4, Servers: 2}, c.handle)
	eventually(t, func() bool { return c.count() == 301 })
	listen(t, r, q)
	var clients []job.ID
	for range 20 {
		clients = append(clients, newTask().JobID)
	}
	h := hear(t, r, clients...)
	var running []job.ID
	for i := range 200 {
		n := job.Notification{ClientID: clients[i%20], JobID: newTask().JobID, Attempt: 1, Progress: &job.Progress{Percentage: i % 100}}
		running = append(running, n.JobID)
		q.Publish(n)
	}
	for range running {
		receive(t, h.news, "news")
	}
	for i, id := range running {
		requireProgress(t, q, id, 1, &job.Progress{Percentage: i % 100})
	}
	requireDeliveriesWork(t, r, q)
	require.Equal(t, 50, hammer(t, newTask().JobID, newLimiter(t, r, LimiterConfig{PerMinute: 50, Clock: newClock().now})))
	require.Zero(t, value(r.metrics.errors.WithLabelValues("work")))
}

// requireDeliveriesWork uses the queue of hints and the outcome stream.
func requireDeliveriesWork(t *testing.T, r *Redis, q *Queue) {
	t.Helper()
	clients := newClients(100)
	require.NoError(t, q.WakeDeliveries(t.Context(), clients[:50]))
	require.NoError(t, q.WakeDeliveries(t.Context(), clients[:50]))
	handled := startCouriers(t, r, WorkersConfig{Concurrency: 4, Servers: 2})
	for _, client := range clients[50:] {
		q.WakeDelivery(client)
	}
	var got []job.ID
	for range clients {
		got = append(got, receive(t, handled, "a hint"))
	}
	require.ElementsMatch(t, clients, got)
	entries := newEntries(3, 10)
	require.NoError(t, q.AppendOutcomes(t.Context(), "outcomes", 1000, entries))
	require.Equal(t, entries, streamOf(t, r, "outcomes"))
}

func TestOneRedis(t *testing.T) {
	t.Parallel()
	requireAllWorks(t, ownRedis(t).URL())
}

func TestMiniredis(t *testing.T) {
	t.Parallel()
	mini, err := devstack.StartMiniredis(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = mini.Stop() })
	requireAllWorks(t, mini.URL())
}

// startRedis starts a server with settings in a folder of its own.
func startRedis(t *testing.T, settings map[string]string) (server *devstack.Redis, data string) {
	t.Helper()
	dir, err := devstack.MkdirTemp("forgerun-tasks-")
	require.NoError(t, err)
	server, err = devstack.StartRedis(t.Context(), devstack.RedisOptions{Dir: dir, Settings: settings})
	t.Cleanup(func() {
		if server != nil {
			_ = server.Kill()
		}
		_ = os.RemoveAll(dir)
	})
	require.NoError(t, err)
	return server, filepath.Join(dir, "data")
}

func TestUnixSocketWithPassword(t *testing.T) {
	t.Parallel()
	server, data := startRedis(t, map[string]string{"unixsocket": "redis.sock", "unixsocketperm": "777"})
	open := connect(t, server.URL())
	require.NoError(t, open.client.Do(t.Context(), "ACL", "SETUSER", "anna", "on", ">ge/heim", "~*", "&*", "+@all").Err())
	requireAllWorks(t, "unix://anna:ge%2Fheim@"+filepath.Join(data, "redis.sock")+"?db=3")
	wrong := connect(t, "unix://anna:x@"+filepath.Join(data, "redis.sock"))
	require.ErrorContains(t, wrong.Ping(t.Context()), "WRONGPASS")
}

func TestCluster(t *testing.T) {
	t.Parallel()
	var nodes []*Redis
	var addresses []string
	for i := range 2 {
		server, _ := startRedis(t, map[string]string{"cluster-enabled": "yes"})
		node := connect(t, server.URL())
		require.NoError(t, node.client.Do(t.Context(), "CLUSTER", "ADDSLOTSRANGE", i*8192, i*8192+8191).Err())
		nodes, addresses = append(nodes, node), append(addresses, fmt.Sprint("127.0.0.1:", server.Port()))
	}
	_, port, _ := strings.Cut(addresses[1], ":")
	require.NoError(t, nodes[0].client.ClusterMeet(t.Context(), "127.0.0.1", port).Err())
	for _, node := range nodes {
		eventually(t, func() bool {
			info := node.client.ClusterInfo(t.Context()).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_slots_ok:16384")
		})
	}
	requireAllWorks(t, "redis-cluster://"+strings.Join(addresses, ","))
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	server := ownRedis(t)
	requireAllWorks(t, "redis-sentinel://"+startSentinel(t, server.Port())+"?master=main")
}

// startSentinel starts a sentinel that watches the server as "main". Somebody
// else may take a port between choosing and using it; then it takes another.
func startSentinel(t *testing.T, monitored int) string {
	t.Helper()
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	for range 10 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		port := l.Addr().(*net.TCPAddr).Port
		require.NoError(t, l.Close())
		require.NoError(t, os.WriteFile(config, fmt.Appendf(nil,
			"bind 127.0.0.1\nport %d\nsentinel monitor main 127.0.0.1 %d 1\n", port, monitored), 0o600))
		sentinel := exec.Command("redis-server", config, "--sentinel")
		require.NoError(t, sentinel.Start())
		exited := make(chan struct{})
		go func() {
			_ = sentinel.Wait()
			close(exited)
		}()
		t.Cleanup(func() {
			_ = sentinel.Process.Kill()
			<-exited
		})
		r := connect(t, fmt.Sprint("redis://127.0.0.1:", port))
		for ended := false; !ended; {
			if r.client.Do(t.Context(), "SENTINEL", "MYID").Err() == nil {
				return fmt.Sprint("127.0.0.1:", port)
			}
			select {
			case <-exited:
				ended = true
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	require.FailNow(t, "no port for a sentinel")
	return ""
}

func TestTLS(t *testing.T) {
	t.Parallel()
	address := tlsProxy(t, fmt.Sprint("127.0.0.1:", ownRedis(t).Port()))
	requireAllWorks(t, "rediss://"+address+"/2?skip_verify=true")
	strict := connect(t, "rediss://"+address)
	require.ErrorContains(t, strict.Ping(t.Context()), "certificate")
}

// tlsProxy puts TLS, with a certificate that nobody knows, before an address.
func tlsProxy(t *testing.T, target string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
	})
	require.NoError(t, err)
	serveProxy(t, l, target, func([]byte) bool { return true })
	return l.Addr().String()
}

// proxy stands between a client and the Redis on a port. What a connection
// sends after a piece that pass refuses is not forwarded, that piece included.
func proxy(t *testing.T, port int, pass func(sent []byte) bool) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	serveProxy(t, l, fmt.Sprint("127.0.0.1:", port), pass)
	return "redis://" + l.Addr().String()
}

func serveProxy(t *testing.T, l net.Listener, target string, pass func([]byte) bool) {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
	})
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			go forward(ctx, from, target, pass)
		}
	}()
}

func forward(ctx context.Context, from net.Conn, target string, pass func([]byte) bool) {
	defer func() { _ = from.Close() }()
	to, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { _, _ = from.Close(), to.Close() })
	defer stop()
	go func() {
		defer func() { _ = to.Close() }()
		buffer := make([]byte, 1<<16)
		for passing := true; ; {
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			if passing = passing && pass(buffer[:n]); passing {
				_, _ = to.Write(buffer[:n])
			}
		}
	}()
	_, _ = io.Copy(from, to)
}

// go-redis looks at the socket to tell whether Redis has closed it.
func TestCutterShowsTheSocket(t *testing.T) {
	t.Parallel()
	cutter := newCutter(within, nil)
	conn, err := cutter.dial(t.Context(), "tcp", fmt.Sprint("127.0.0.1:", sharedRedis.Port()))
	require.NoError(t, err)
	require.Implements(t, (*syscall.Conn)(nil), conn)
	require.Len(t, cutter.conns, 1)
	require.NoError(t, conn.Close())
	require.Empty(t, cutter.conns)

	conn, err = cutter.dial(t.Context(), "tcp", fmt.Sprint("127.0.0.1:", sharedRedis.Port()))
	require.NoError(t, err)
	cutter.cut()
	_, err = conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, net.ErrClosed)
	_, err = cutter.dial(t.Context(), "tcp", fmt.Sprint("127.0.0.1:", sharedRedis.Port()))
	require.ErrorIs(t, err, errCutOff)
	require.Error(t, conn.Close())
}
