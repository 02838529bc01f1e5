//go:build slow && linux

package main

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	local "github.com/forgerun/forgerun/internal/stack"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

// startRedisWith starts a Redis server. In a Redis Cluster, the server also needs the port 10,000 above its own. If that port is in use,
// startRedisWith tries again with another port.
func startRedisWith(t *testing.T, settings map[string]string) *local.Redis {
	t.Helper()
	for range 10 {
		server, err := local.StartRedis(t.Context(), local.ServerOptions{Dir: filepath.Join(tempDir(t), "redis"), Settings: settings})
		if err == nil {
			t.Cleanup(func() { require.NoError(t, server.Kill()) })
			return server
		}
		require.ErrorContains(t, err, "(cluster), aborting")
	}
	require.FailNow(t, "no free pair of ports was found")
	return nil
}

func redisAt(t *testing.T, port int) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: fmt.Sprint("127.0.0.1:", port)})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

func (s *stack) startSentinels() (addresses string, first *redis.SentinelClient) {
	s.t.Helper()
	var all []string
	for range 3 {
		port, config := freePort(s.t), filepath.Join(s.t.TempDir(), "sentinel.conf")
		require.NoError(s.t, os.WriteFile(config, fmt.Appendf(nil, "bind 127.0.0.1\nport %d\nsentinel monitor main 127.0.0.1 %d 2\n"+
			"sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 5000\n", port, s.redis.Port()), 0o600))
		sentinel := exec.Command("redis-server", config, "--sentinel")
		require.NoError(s.t, sentinel.Start())
		s.t.Cleanup(func() { _, _ = sentinel.Process.Kill(), sentinel.Wait() })
		all = append(all, fmt.Sprint("127.0.0.1:", port))
	}
	for _, address := range all {
		c := redis.NewSentinelClient(&redis.Options{Addr: address})
		s.t.Cleanup(func() { _ = c.Close() })
		eventually(s.t, "a sentinel knows the others and the replica", func() bool {
			others, _ := c.Sentinels(s.ctx(), "main").Result()
			replicas, err := c.Replicas(s.ctx(), "main").Result()
			return err == nil && len(others) == 2 && len(replicas) == 1 && replicas[0]["master-link-status"] == "ok"
		})
		if first == nil {
			first = c
		}
	}
	return strings.Join(all, ","), first
}

// The Redis server with the queue dies. Three sentinels promote the replica.
func TestFaultSentinelFailover(t *testing.T) {
	s := newStackOn(t, repotest.URL(t))
	replica := startRedisWith(t, map[string]string{"replicaof": fmt.Sprint("127.0.0.1 ", s.redis.Port())})
	addresses, asked := s.startSentinels()
	s.env["FORGERUN_REDIS_URL"] = "redis-sentinel://" + addresses + "?master=main"
	r := newTrial(s, nil)
	require.NoError(t, s.redis.Kill())
	accepted := len(s.acceptedIDs())
	eventually(t, "the replica leads", func() bool {
		now, err := asked.GetMasterAddrByName(s.ctx(), "main").Result()
		return err == nil && now[1] == fmt.Sprint(replica.Port())
	})
	r.progress("after the failover")
	require.Greater(t, len(s.acceptedIDs()), accepted)
	s.rdb = redisAt(t, replica.Port())
	r.end()
}

// The Redis Cluster node with the queue dies, and comes back.
func TestFaultClusterNode(t *testing.T) {
	s := newStackOn(t, repotest.URL(t))
	settings := map[string]string{"cluster-enabled": "yes", "cluster-require-full-coverage": "no", "cluster-node-timeout": "1000"}
	rest, holder := startRedisWith(t, settings), startRedisWith(t, settings)
	s.rdb = redisAt(t, holder.Port())
	others := redisAt(t, rest.Port())
	slot := int(s.rdb.ClusterKeySlot(s.ctx(), "{jobs}").Val())
	require.NoError(t, others.Do(s.ctx(), "CLUSTER", "ADDSLOTSRANGE", 0, slot-1, slot+1, 16383).Err())
	require.NoError(t, s.rdb.Do(s.ctx(), "CLUSTER", "ADDSLOTS", slot).Err())
	require.NoError(t, s.rdb.ClusterMeet(s.ctx(), "127.0.0.1", fmt.Sprint(rest.Port())).Err())
	for _, node := range []*redis.Client{others, s.rdb} {
		eventually(t, "the cluster is one", func() bool { return strings.Contains(node.ClusterInfo(s.ctx()).Val(), "cluster_slots_ok:16384") })
	}
	s.env["FORGERUN_REDIS_URL"] = fmt.Sprintf("redis-cluster://127.0.0.1:%d,127.0.0.1:%d", rest.Port(), holder.Port())
	r := newTrial(s, nil)
	require.NoError(t, holder.Kill())
	accepted := len(s.acceptedIDs())
	eventually(t, "jobs are accepted without the queue", func() bool { return len(s.acceptedIDs()) > accepted+100 })
	require.NoError(t, holder.Start(t.Context()))
	r.progress("with the node again")
	r.end()
}

// In a Redis Cluster with replicas, the node with the queue dies. The other nodes promote its replica.
func TestFaultClusterFailover(t *testing.T) {
	s := newStackOn(t, repotest.URL(t))
	settings := map[string]string{"cluster-enabled": "yes", "cluster-node-timeout": "1000"}
	var servers []*local.Redis
	var nodes []*redis.Client
	for range 4 {
		servers = append(servers, startRedisWith(t, settings))
		nodes = append(nodes, redisAt(t, servers[len(servers)-1].Port()))
	}
	holder, replica := nodes[0], nodes[3]
	slot := int(holder.ClusterKeySlot(s.ctx(), "{jobs}").Val())
	require.NoError(t, holder.ClusterAddSlotsRange(s.ctx(), slot, slot).Err())
	require.NoError(t, nodes[1].ClusterAddSlotsRange(s.ctx(), 0, slot-1).Err())
	require.NoError(t, nodes[2].ClusterAddSlotsRange(s.ctx(), slot+1, 16383).Err())
	for _, other := range servers[1:] {
		require.NoError(t, holder.ClusterMeet(s.ctx(), "127.0.0.1", fmt.Sprint(other.Port())).Err())
	}
	has := func(what string, nodes []*redis.Client, read func(*redis.Client) string, part string) {
		for _, node := range nodes {
			eventually(t, what, func() bool { return strings.Contains(read(node), part) })
		}
	}
	info := func(node *redis.Client) string { return node.ClusterInfo(s.ctx()).Val() }
	has("the nodes know each other", nodes, info, "cluster_known_nodes:4")
	has("the cluster is one", nodes, info, "cluster_state:ok")
	require.NoError(t, replica.ClusterReplicate(s.ctx(), holder.Do(s.ctx(), "CLUSTER", "MYID").Val().(string)).Err())
	role := func(node *redis.Client) string { return node.Info(s.ctx(), "replication").Val() }
	has("the replica follows", []*redis.Client{replica}, role, "master_link_status:up")
	has("all nodes know the replica", nodes, func(node *redis.Client) string { return node.ClusterNodes(s.ctx()).Val() }, "slave")
	s.env["FORGERUN_REDIS_URL"] = fmt.Sprintf("redis-cluster://127.0.0.1:%d,127.0.0.1:%d", servers[0].Port(), servers[1].Port())
	r := newTrial(s, nil)

	require.NoError(t, servers[0].Kill())
	has("the replica leads", []*redis.Client{replica}, role, "role:master")
	r.progress("after the failover")
	s.rdb = replica
	r.end()
}

func certificate(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	private, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	require.NoError(t, err)
	dir := tempDir(t) // a folder that Redis can read as an unprivileged user
	require.NoError(t, os.Chmod(dir, 0o755))
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	require.NoError(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o644))
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o644))
	return certFile, keyFile
}

// Redis requires TLS, and a user with few rights. The test disables this user for a while.
func TestFaultRedisUserIsTurnedOff(t *testing.T) {
	s := newStackOn(t, repotest.URL(t))
	cert, key := certificate(t)
	port := freePort(t)
	server := startRedisWith(t, map[string]string{
		"tls-port": fmt.Sprint(port), "tls-cert-file": cert, "tls-key-file": key, "tls-ca-cert-file": cert, "tls-auth-clients": "no",
	})
	s.rdb = redisAt(t, server.Port())
	rights := strings.Fields(operationsACL(t))
	require.Equal(t, "forgerun", rights[0])
	user := func(rules ...string) {
		arguments := []any{"ACL", "SETUSER", "forgerun"}
		for _, rule := range rules {
			arguments = append(arguments, rule)
		}
		require.NoError(t, s.rdb.Do(s.ctx(), arguments...).Err())
	}
	user(append(rights[1:], ">secret")...)
	s.env["FORGERUN_REDIS_URL"] = fmt.Sprintf("rediss://forgerun:secret@127.0.0.1:%d", port)
	s.env["SSL_CERT_FILE"] = cert
	r := newTrial(s, nil)
	user("off")
	require.NoError(t, s.rdb.Do(s.ctx(), "CLIENT", "KILL", "USER", "forgerun").Err())
	accepted := len(s.acceptedIDs())
	eventually(t, "jobs are accepted", func() bool { return len(s.acceptedIDs()) > accepted+100 })
	user("on")
	r.progress("with the user again")
	denied, err := s.rdb.Do(s.ctx(), "ACL", "LOG").Slice()
	require.NoError(t, err)
	for _, entry := range denied {
		require.NotContains(t, []any{"command", "key", "channel"}, entry.(map[any]any)["reason"], "%v", entry)
	}
	r.end()
}

func operationsACL(t *testing.T) string {
	t.Helper()
	page := readText(t, "../../docs/how-to/operations.md")
	_, line, found := strings.Cut(page, "\nACL SETUSER ")
	require.True(t, found, "docs/how-to/operations.md has no ACL")
	line, _, _ = strings.Cut(line, "\n")
	return strings.ReplaceAll(line, ">PASSWORD", "")
}

// Postgres commits only after its standby has confirmed (synchronous replication). While the standby is down, submissions are refused.
// After the primary dies and the standby is promoted, no accepted job is missing.
func TestFaultStandby(t *testing.T) {
	dir := tempDir(t)
	first, err := local.StartPostgres(t.Context(), local.ServerOptions{Dir: filepath.Join(dir, "first")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, first.Kill()) })
	require.NoError(t, repo.Migrate(t.Context(), first.URL(), -1))
	require.NoError(t, first.Stop())
	runIn(t, dir, nil, "cp", "-a", "first", "second")
	require.NoError(t, os.Remove(filepath.Join(dir, "second", "running")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "second", "data", "standby.signal"), nil, 0o644))
	require.NoError(t, first.Start(t.Context()))
	second, err := local.StartPostgres(t.Context(), local.ServerOptions{Dir: filepath.Join(dir, "second"), Settings: map[string]string{
		"primary_conninfo": fmt.Sprintf("host=127.0.0.1 port=%d user=forgerun password=%s application_name=second",
			first.Port(), strings.TrimSpace(readText(t, filepath.Join(dir, "first", "password")))),
	}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, second.Kill()) })

	host := hostOf(t, first.URL())
	both := strings.Replace(first.URL(), host, host+","+hostOf(t, second.URL()), 1) + "&target_session_attrs=read-write"
	s := newStackOn(t, both)
	s.exec(`ALTER SYSTEM SET synchronous_standby_names = 'second'`)
	s.exec(`SELECT pg_reload_conf()`)
	s.awaitCount("the standby confirms", 1, `SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'`)
	r := newTrial(s, nil)

	require.NoError(t, second.Kill())
	r.refusals()
	accepted := len(s.acceptedIDs())
	time.Sleep(5 * time.Second)
	require.Equal(t, accepted, len(s.acceptedIDs()), "no job is accepted that only one server has")
	require.NoError(t, second.Start(t.Context()))
	r.progress("with the standby again")

	require.NoError(t, first.Kill())
	runIn(t, dir, nil, "psql", second.URL(), "-Atc", "SELECT pg_promote()")
	s.db.Reset()
	s.exec(`ALTER SYSTEM RESET synchronous_standby_names`) // the promoted server has no standby to wait for
	r.progress("on the second server")
	for _, id := range s.acceptedIDs() {
		require.Equal(t, 1, s.count(`SELECT count(*) FROM jobs WHERE job_id::text = $1`, id), "accepted job is lost: %s", id)
	}
	r.end()
}

func limitMemory(t *testing.T, limit int) (join func(pid int), killed func() int) {
	t.Helper()
	write := func(path, value string) error { return os.WriteFile(path, []byte(value), 0o600) }
	for _, v := range []struct{ root, limit, swap, events string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.swappiness", "memory.oom_control"},
		{"/sys/fs/cgroup", "memory.max", "memory.swap.max", "memory.events"},
	} {
		group := filepath.Join(v.root, fmt.Sprint("forgerun-test-", os.Getpid()))
		if os.Mkdir(group, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(group) })
		if write(filepath.Join(group, v.limit), fmt.Sprint(limit)) != nil {
			continue
		}
		_ = write(filepath.Join(group, v.swap), "0")
		return func(pid int) { require.NoError(t, write(filepath.Join(group, "cgroup.procs"), fmt.Sprint(pid))) }, func() (n int) {
			text := readText(t, filepath.Join(group, v.events))
			_, rest, _ := strings.Cut(text, "oom_kill ")
			_, _ = fmt.Sscan(rest, &n)
			return n
		}
	}
	t.Skip("this needs root and control groups for memory")
	return nil, nil
}

// The jobs of a worker exceed the worker's memory limit, so the kernel kills it. The jobs fail with a retryable failure. Another worker
// runs their next attempts.
func TestFaultWorkerWithoutMemory(t *testing.T) {
	join, killed := limitMemory(t, 64<<20)
	s := newStackOn(t, repotest.URL(t), quickLease, env{"FORGERUN_TIME_SCALE": "0.2"})
	api := s.startLeader()
	u := s.newUser(api)
	poor := s.startWorker(env{"FORGERUN_WORKER_CONCURRENCY": "64"})
	join(poor.cmd.Process.Pid)
	ids := u.submitMany(api, 16, execute("MEMORY_SPIKE", `"auto_retry":true`))
	eventually(t, "the kernel kills the worker", func() bool { return killed() > 0 })
	require.Equal(t, -1, poor.exitCode())
	s.startWorker()
	s.awaitFinal(ids...)
	require.Equal(t, len(ids), s.countJobs(ids, "SUCCEEDED"))
	require.Positive(t, s.count(`SELECT count(*) FROM reports WHERE failure_code = 'RFA_EXEC_WORKER_UNAVAILABLE'`))
	s.checkInvariants()
}
