package stack

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

// need is what has to be ours for a kind of fault.
type need int

const (
	ourProcesses need = iota
	ourServers        // Postgres and Redis
	ourProxies
	ourClock
)

// Kind is a kind of fault.
type Kind struct {
	Name, Does string

	needs need
	// inject picks a target, does the fault, undoes it and returns, at the latest when the context ends. Target stays
	// empty if there is nothing to hit.
	inject injection
}

type injection func(ctx context.Context, s *Stack, rng *rand.Rand, f *Fault)

var kinds = []Kind{
	{"kill", "kill -9 of a process: worker, deliverer or api", ourProcesses, onProcess(kill)},
	{"stop", "a process is paused for longer than its lease (SIGSTOP, SIGCONT)", ourProcesses, onProcess(pause)},
	{"term", "a process is asked to end (SIGTERM) and started again", ourProcesses, onProcess(terminate)},
	{"flush", "Redis loses everything (FLUSHALL)", ourServers, onServer("redis", sendRedis("FLUSHALL"), nil, atOnce)},
	{"redis", "kill -9 of Redis, which is started again", ourServers, onServer("redis", killRedis, startRedis, atOnce)},
	{"redis-pause", "Redis hangs for a while", ourServers, onServer("redis", pauseRedis, resumeRedis, hanging)},
	// One byte is less than an empty server uses; 0 is no limit.
	{"redis-full", "Redis refuses writes for a while, as if its memory were used up", ourServers, onServer("redis",
		sendRedis("CONFIG SET maxmemory 1"), sendRedis("CONFIG SET maxmemory 0"), hanging)},
	{"postgres", "Postgres stops like in a crash and is started again", ourServers, onServer("postgres", killPostgres, startPostgres, atOnce)},
	{"cut", "a quarter of the connections to Postgres, Redis, the API or a receiver is reset", ourProxies, onProxy(cut)},
	{"lose", "the next answer on a quarter of the connections is lost, and the connection with it", ourProxies, onProxy(lose)},
	{"slow", "everything on the connections to one of them is delayed for a while", ourProxies, onProxy(slow)},
	{"stall", "the connections to one of them pass nothing for a while", ourProxies, onProxy(stall)},
	{"clock", "the service's clock jumps ahead by seconds to hours, stands still, or runs at another rate for a while", ourClock, moveClock},
}

// do does one fault. It reports whether anything was hit.
func (k Kind) do(ctx context.Context, s *Stack, seed uint64) (Fault, bool) {
	f := Fault{Kind: k.Name, Count: 1}
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

// between draws a duration.
func between(rng *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(rng.Int64N(int64(to-from)+1))
}

// onProcess does a fault to one of the processes that live and that no other fault
// works on, if there is one.
func onProcess(inject func(context.Context, *Stack, *rand.Rand, *member, *Role) error) injection {
	return func(ctx context.Context, s *Stack, rng *rand.Rand, f *Fault) {
		candidates := s.members()
		rng.Shuffle(len(candidates), func(i, j int) { candidates[i], candidates[j] = candidates[j], candidates[i] })
		for _, m := range candidates {
			if r := m.living(); r != nil && m.busy.CompareAndSwap(false, true) {
				defer m.busy.Store(false)
				f.Target, f.Err = m.name, inject(ctx, s, rng, m, r)
				return
			}
		}
	}
}

// comeBack waits for the next run of a process that a fault has ended, unless the context or the member ends.
func comeBack(ctx context.Context, m *member) error {
	err := m.awaitReady(ctx)
	if ctx.Err() != nil || m.ctx.Err() != nil {
		return nil
	}
	return err
}

func kill(ctx context.Context, _ *Stack, _ *rand.Rand, m *member, r *Role) error {
	r.Kill()
	return comeBack(ctx, m)
}

func terminate(ctx context.Context, s *Stack, _ *rand.Rand, m *member, r *Role) error {
	return errors.Join(r.Stop(s.env.stopPatience()), comeBack(ctx, m))
}

// pause ends early if the process is scaled away.
func pause(ctx context.Context, s *Stack, rng *rand.Rand, _ *member, r *Role) error {
	if err := r.Pause(); err != nil {
		return err
	}
	defer func() { _ = r.Resume() }() // fails only if it has ended
	select {
	case <-time.After(between(rng, s.o.Lease*5/4, s.o.Lease*7/4)):
	case <-r.exited:
	case <-ctx.Done():
	}
	return nil
}

// bounds are the shortest and the longest time that a fault lasts.
type bounds struct{ least, most time.Duration }

var (
	atOnce  = bounds{0, time.Second}
	hanging = bounds{500 * time.Millisecond, 4 * time.Second}
)

type serverStep func(context.Context, *Stack) error

// onServer does a fault to Postgres or Redis, and undoes it after a time between two
// bounds. The steps' context outlives the end of the chaos.
func onServer(name string, do, undo serverStep, lasts bounds) injection {
	return func(ctx context.Context, s *Stack, rng *rand.Rand, f *Fault) {
		lasting, cancel := context.WithTimeout(context.WithoutCancel(ctx), serverPatience)
		defer cancel()
		f.Target = name
		f.Err = do(lasting, s)
		if undo != nil {
			Sleep(ctx, between(rng, lasts.least, lasts.most))
			f.Err = errors.Join(f.Err, undo(lasting, s))
		}
	}
}

func killRedis(_ context.Context, s *Stack) error       { return s.servers.Redis.Kill() }
func startRedis(ctx context.Context, s *Stack) error    { return s.servers.Redis.Start(ctx) }
func pauseRedis(_ context.Context, s *Stack) error      { return s.servers.Redis.Pause() }
func resumeRedis(_ context.Context, s *Stack) error     { return s.servers.Redis.Resume() }
func killPostgres(_ context.Context, s *Stack) error    { return s.servers.Postgres.Kill() }
func startPostgres(ctx context.Context, s *Stack) error { return s.servers.Postgres.Start(ctx) }

func sendRedis(command string) serverStep {
	return func(ctx context.Context, s *Stack) error { return s.servers.Redis.Do(ctx, command) }
}

// onProxy does a fault to one of the proxies with connections. inject returns the number of connections that it hit.
func onProxy(inject func(context.Context, *proxy, *rand.Rand) int) injection {
	return func(ctx context.Context, s *Stack, rng *rand.Rand, f *Fault) {
		used := slices.DeleteFunc(s.proxies(), func(p *proxy) bool { return len(p.open()) == 0 })
		if len(used) == 0 {
			return
		}
		p := used[rng.IntN(len(used))]
		if f.Count = inject(ctx, p, rng); f.Count > 0 {
			f.Target = p.name
		}
	}
}

// someLinks picks a quarter of the open connections, at least one if there are any.
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

// lose waits a moment for answers, since pooled connections may be idle.
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

func slow(ctx context.Context, p *proxy, rng *rand.Rand) int {
	by := between(rng, 20*time.Millisecond, 300*time.Millisecond)
	return delayFor(ctx, p, between(rng, time.Second, 5*time.Second), by)
}

// stall lets nothing through until its end.
func stall(ctx context.Context, p *proxy, rng *rand.Rand) int {
	return delayFor(ctx, p, between(rng, time.Second, 5*time.Second), time.Hour)
}

// delayFor delays one proxy's connections for a while, unless another fault does already.
func delayFor(ctx context.Context, p *proxy, lasts, by time.Duration) int {
	d := &delay{by: by, over: make(chan struct{})}
	if !p.fault.CompareAndSwap(nil, d) {
		return 0
	}
	Sleep(ctx, lasts)
	p.fault.Store(nil)
	close(d.over)
	return int(d.hit.Load())
}
