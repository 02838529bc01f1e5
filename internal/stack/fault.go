package stack

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

type need int

const (
	ourProcesses need = iota
	ourServers        // Postgres and Redis
	ourProxies
	ourClock
)

type faultKind struct {
	name, does string
	needs      need
	inject     injection
}

// injection picks a target, injects the fault, waits, and ends the fault. If the context ends during the wait, it ends the fault at once.
// If there is no possible target, f.Target stays empty.
type injection func(ctx context.Context, s *Stack, rng *rand.Rand, f *Fault)

var kinds = []faultKind{
	{"kill", "kill -9 of a process: worker, deliverer or api", ourProcesses, onProcess(
		func(_ context.Context, _ *Stack, _ *rand.Rand, p *Process) error { p.Kill(); return nil })},
	{"stop", "a process is paused for longer than its lease (SIGSTOP, SIGCONT)", ourProcesses, onProcess(pause)},
	{"term", "a process is stopped with SIGTERM and started again", ourProcesses, onProcess(
		func(_ context.Context, s *Stack, _ *rand.Rand, p *Process) error { return p.Stop(s.env.stopPatience()) })},
	{"flush", "Redis loses everything (FLUSHALL)", ourServers, onServer("redis", sendRedis("FLUSHALL"), nil, atOnce)},
	{"redis", "kill -9 of Redis, which is started again", ourServers, onServer("redis",
		func(_ context.Context, s *Servers) error { return s.Redis.Kill() },
		func(ctx context.Context, s *Servers) error { return s.Redis.Start(ctx) }, atOnce)},
	{"redis-pause", "Redis hangs for a while", ourServers, onServer("redis",
		func(_ context.Context, s *Servers) error { return s.Redis.Pause() },
		func(_ context.Context, s *Servers) error { return s.Redis.Resume() }, hanging)},
	// Even an empty Redis uses more than 1 byte, so with maxmemory 1 it refuses all writes. maxmemory 0 means no limit.
	{"redis-full", "Redis refuses writes for a while, as if it were out of memory", ourServers, onServer("redis",
		sendRedis("CONFIG SET maxmemory 1"), sendRedis("CONFIG SET maxmemory 0"), hanging)},
	{"postgres", "Postgres stops like in a crash and is started again", ourServers, onServer("postgres",
		func(_ context.Context, s *Servers) error { return s.Postgres.Kill() },
		func(ctx context.Context, s *Servers) error { return s.Postgres.Start(ctx) }, atOnce)},
	{"cut", "a quarter of the connections to Postgres, Redis, the API or a receiver is reset", ourProxies, onProxy(cut)},
	{"lose", "the next response on a quarter of the connections is lost, together with the connection", ourProxies, onProxy(lose)},
	{"slow", "all data on the connections to Postgres, Redis, the API or a receiver is delayed for a while", ourProxies, onProxy(
		delayed(bounds{20 * time.Millisecond, 300 * time.Millisecond}))},
	{"stall", "the connections to Postgres, Redis, the API or a receiver transfer no data for a while", ourProxies, onProxy(
		delayed(bounds{time.Hour, time.Hour}))},
	{"clock", "the service's clock jumps ahead by seconds to hours, stands still, or runs at another rate for a while", ourClock, moveClock},
}

// serverPatience is the time limit for injecting and ending a fault of a server or the clock.
const serverPatience = 60 * time.Second

func (k faultKind) do(ctx context.Context, s *Stack, seed uint64) (Fault, bool) {
	f := Fault{Kind: k.name, Count: 1}
	if k.needs == ourServers {
		if s.serverFault.Acquire(ctx, 1) != nil {
			return f, false
		}
		defer s.serverFault.Release(1)
	}
	f.At = time.Now()
	k.inject(ctx, s, rand.New(rand.NewPCG(seed, 0)), &f)
	f.Until = time.Now()
	return f, f.Target != ""
}

type bounds struct{ least, most time.Duration }

var (
	atOnce  = bounds{0, time.Second}
	hanging = bounds{500 * time.Millisecond, 4 * time.Second}
	delays  = bounds{time.Second, 5 * time.Second} // duration of a fault that delays connections
)

func (b bounds) draw(rng *rand.Rand) time.Duration {
	return b.least + time.Duration(rng.Int64N(int64(b.most-b.least)+1))
}

// onProcess returns an injection into a random process that has no other fault. The injection ends when the process is ready again.
func onProcess(inject func(context.Context, *Stack, *rand.Rand, *Process) error) injection {
	return func(ctx context.Context, s *Stack, rng *rand.Rand, f *Fault) {
		candidates := s.members()
		rng.Shuffle(len(candidates), func(i, j int) { candidates[i], candidates[j] = candidates[j], candidates[i] })
		for _, m := range candidates {
			p := m.living()
			if p == nil || !m.gate.TryAcquire(1) {
				continue
			}
			f.Target, f.Err = m.name, inject(ctx, s, rng, p)
			m.gate.Release(1)
			if err := m.awaitReady(ctx); ctx.Err() == nil && m.ctx.Err() == nil {
				f.Err = errors.Join(f.Err, err)
			}
			return
		}
	}
}

// pause suspends the process for 1.25 to 1.75 lease times. If the context ends during this time, the process resumes at once.
func pause(ctx context.Context, s *Stack, rng *rand.Rand, p *Process) error {
	if err := p.Pause(); err != nil {
		return err
	}
	defer func() { _ = p.Resume() }() // fails only if the process has ended
	select {
	case <-time.After(bounds{s.o.Lease * 5 / 4, s.o.Lease * 7 / 4}.draw(rng)):
	case <-p.exited:
	case <-ctx.Done():
	}
	return nil
}

type serverStep func(context.Context, *Servers) error

// onServer returns an injection that calls `do` and, after a random time within `lasts`, `undo`. If the context ends during this time, it
// calls `undo` at once.
func onServer(name string, do, undo serverStep, lasts bounds) injection {
	return func(ctx context.Context, s *Stack, rng *rand.Rand, f *Fault) {
		lasting, cancel := context.WithTimeout(context.WithoutCancel(ctx), serverPatience)
		defer cancel()
		f.Target, f.Err = name, do(lasting, s.servers)
		if undo != nil {
			Sleep(ctx, lasts.draw(rng))
			f.Err = errors.Join(f.Err, undo(lasting, s.servers))
		}
	}
}

func sendRedis(command string) serverStep {
	return func(ctx context.Context, s *Servers) error { return s.Redis.Do(ctx, command) }
}

// onProxy returns an injection for a random proxy with open connections.
func onProxy(inject func(context.Context, *proxy, *rand.Rand) int) injection {
	return func(ctx context.Context, s *Stack, rng *rand.Rand, f *Fault) {
		used := slices.DeleteFunc(s.faulty(), func(p *proxy) bool { return len(p.open()) == 0 })
		if len(used) == 0 {
			return
		}
		p := used[rng.IntN(len(used))]
		if f.Count = inject(ctx, p, rng); f.Count > 0 {
			f.Target = p.name
		}
	}
}

func someLinks(p *proxy, rng *rand.Rand) []*link {
	links := p.open()
	rng.Shuffle(len(links), func(i, j int) { links[i], links[j] = links[j], links[i] })
	return links[:min(max(1, len(links)/4), len(links))]
}

func cut(_ context.Context, p *proxy, rng *rand.Rand) (count int) {
	for _, l := range someLinks(p, rng) {
		if l.cut() {
			count++
		}
	}
	return count
}

// lose drops the next response on some connections. It waits at most two seconds, because an idle connection may get no response.
func lose(ctx context.Context, p *proxy, rng *rand.Rand) (count int) {
	links := someLinks(p, rng)
	for _, l := range links {
		l.losing.Store(true)
	}
	isLosing := func(l *link) bool { return l.losing.Load() }
	for end := time.Now().Add(2 * time.Second); slices.ContainsFunc(links, isLosing) && time.Now().Before(end); {
		if !Sleep(ctx, retryPeriod) {
			break
		}
	}
	for _, l := range links {
		if !l.losing.CompareAndSwap(true, false) {
			count++
		}
	}
	return count
}

// delayed delays all data of a proxy. The fault lasts 1 to 5 s. If another fault already delays the proxy's data, nothing happens.
func delayed(by bounds) func(context.Context, *proxy, *rand.Rand) int {
	return func(ctx context.Context, p *proxy, rng *rand.Rand) int {
		d := &delay{by: by.draw(rng), over: make(chan struct{})}
		if !p.fault.CompareAndSwap(nil, d) {
			return 0
		}
		Sleep(ctx, delays.draw(rng))
		p.fault.Store(nil)
		close(d.over)
		return int(d.hit.Load())
	}
}
