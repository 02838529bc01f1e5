package stack

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/forgerun/forgerun/internal/devstack"
)

// need is what has to be ours for a kind of fault.
type need int

const (
	ourProcesses need = iota
	ourServers        // Postgres and Redis
	ourProxies
)

// kind is a kind of fault. Its inject picks a target, does the fault, undoes it
// and returns once that is done, at the latest when the context ends. It leaves
// Target empty if there is nothing to hit.
type kind struct {
	name, does string
	needs      need
	inject     func(ctx context.Context, s *Stack, rng *rand.Rand, f *Fault)
}

var kinds = []kind{
	{"kill", "kill -9 of a process: worker, webhooks or api", ourProcesses, kill},
	{"stop", "a process is paused for longer than its lease (SIGSTOP, SIGCONT)", ourProcesses, stop},
	{"term", "a process is asked to end (SIGTERM) and started again", ourProcesses, term},
	{"flush", "Redis loses everything (FLUSHALL)", ourServers, flush},
	{"redis", "kill -9 of Redis, which is started again", ourServers, killRedis},
	{"redis-pause", "Redis hangs for a while", ourServers, pauseRedis},
	{"redis-full", "Redis refuses writes for a while, as if its memory were used up", ourServers, fillRedis},
	{"postgres", "Postgres stops like in a crash and is started again", ourServers, crashPostgres},
	{"cut", "a quarter of the connections to Postgres, Redis, the API or a receiver is reset", ourProxies, cut},
	{"lose", "the next answer on a quarter of the connections is lost, and the connection with it", ourProxies, lose},
	{"slow", "everything on the connections to one of them is delayed for a while", ourProxies, slow},
	{"stall", "the connections to one of them pass nothing for a while", ourProxies, stall},
}

// strike does one fault. It reports whether anything was hit.
func (k kind) strike(ctx context.Context, s *Stack, seed uint64) (Fault, bool) {
	f := Fault{Kind: k.name, Count: 1}
	if k.needs == ourServers {
		if s.storeFault.take(ctx) != nil {
			return f, false
		}
		defer s.storeFault.give()
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

// victim picks one of the processes that live and that no other fault works on,
// until free is called. Beside foreign servers only workers are touched.
func (s *Stack) victim(rng *rand.Rand) (m *member, p *process, free func()) {
	candidates := s.members()
	if s.o.foreign() {
		s.mu.Lock()
		candidates = append([]*member(nil), s.workers...)
		s.mu.Unlock()
	}
	rng.Shuffle(len(candidates), func(i, j int) { candidates[i], candidates[j] = candidates[j], candidates[i] })
	for _, m := range candidates {
		if p := m.living(); p != nil && m.busy.CompareAndSwap(false, true) {
			return m, p, func() { m.busy.Store(false) }
		}
	}
	return nil, nil, nil
}

// comeBack waits for the next run of a process that a fault has ended. Who ends
// the wait, or the process, is no failure of it.
func comeBack(ctx context.Context, m *member) error {
	_, err := m.awaitReady(ctx)
	if ctx.Err() != nil || m.ctx.Err() != nil {
		return nil
	}
	return err
}

func kill(ctx context.Context, s *Stack, rng *rand.Rand, f *Fault) {
	m, p, free := s.victim(rng)
	if m == nil {
		return
	}
	defer free()
	f.Target = m.name
	p.kill()
	f.Err = comeBack(ctx, m)
}

func term(ctx context.Context, s *Stack, rng *rand.Rand, f *Fault) {
	m, p, free := s.victim(rng)
	if m == nil {
		return
	}
	defer free()
	f.Target = m.name
	f.Err = errors.Join(p.terminate(s.env.stopPatience()), comeBack(ctx, m))
}

func stop(ctx context.Context, s *Stack, rng *rand.Rand, f *Fault) {
	m, p, free := s.victim(rng)
	if m == nil {
		return
	}
	defer free()
	f.Target = m.name
	if f.Err = p.pause(); f.Err != nil {
		return
	}
	defer p.resume()
	timer := time.NewTimer(between(rng, s.o.Lease*5/4, s.o.Lease*7/4))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.exited: // it was scaled away
	case <-ctx.Done():
	}
}

// undoing is the context of what must happen even after the end of the chaos.
func undoing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), storePatience)
}

func flush(ctx context.Context, s *Stack, _ *rand.Rand, f *Fault) {
	f.Target = "redis"
	ctx, cancel := undoing(ctx)
	defer cancel()
	f.Err = s.askRedis(ctx, "FLUSHALL")
}

func killRedis(ctx context.Context, s *Stack, rng *rand.Rand, f *Fault) {
	f.Target = "redis"
	f.Err = s.redis.Kill()
	sleep(ctx, between(rng, 0, time.Second))
	ctx, cancel := undoing(ctx)
	defer cancel()
	f.Err = errors.Join(f.Err, s.redis.Start(ctx))
}

func pauseRedis(ctx context.Context, s *Stack, rng *rand.Rand, f *Fault) {
	f.Target = "redis"
	if f.Err = s.redis.Pause(); f.Err != nil {
		return
	}
	sleep(ctx, between(rng, 500*time.Millisecond, 4*time.Second))
	f.Err = s.redis.Resume()
}

// fillRedis sets a limit that is below what an empty server uses.
func fillRedis(ctx context.Context, s *Stack, rng *rand.Rand, f *Fault) {
	f.Target = "redis"
	healing, cancel := undoing(ctx)
	defer cancel()
	if f.Err = s.askRedis(healing, "CONFIG SET maxmemory 1"); f.Err != nil {
		return
	}
	sleep(ctx, between(rng, 500*time.Millisecond, 4*time.Second))
	f.Err = s.askRedis(healing, "CONFIG SET maxmemory 0")
}

func crashPostgres(ctx context.Context, s *Stack, rng *rand.Rand, f *Fault) {
	f.Target = "postgres"
	f.Err = s.postgres.Stop(devstack.Immediate)
	sleep(ctx, between(rng, 0, time.Second))
	ctx, cancel := undoing(ctx)
	defer cancel()
	f.Err = errors.Join(f.Err, s.postgres.Start(ctx))
}

// hitShare is the part of the connections that is cut at once.
const hitShare = 0.25

// carrier picks one of the proxies that carry a connection at the moment.
func (s *Stack) carrier(rng *rand.Rand) *proxy {
	var carrying []*proxy
	for _, p := range s.proxies() {
		if p.open() > 0 {
			carrying = append(carrying, p)
		}
	}
	if len(carrying) == 0 {
		return nil
	}
	return carrying[rng.IntN(len(carrying))]
}

func cut(_ context.Context, s *Stack, rng *rand.Rand, f *Fault) {
	p := s.carrier(rng)
	if p == nil {
		return
	}
	if f.Count = p.cut(hitShare, rng); f.Count > 0 {
		f.Target = p.name
	}
}

// lose waits a moment for answers, since pooled connections may be at rest.
func lose(ctx context.Context, s *Stack, rng *rand.Rand, f *Fault) {
	p := s.carrier(rng)
	if p == nil {
		return
	}
	x := doom(p.some(hitShare, rng))
	timer := time.NewTimer(2 * time.Second)
	defer timer.Stop()
	select {
	case <-x.done:
	case <-timer.C:
	case <-ctx.Done():
	}
	if f.Count = x.end(); f.Count > 0 {
		f.Target = p.name
	}
}

func slow(ctx context.Context, s *Stack, rng *rand.Rand, f *Fault) {
	hinder(ctx, s, rng, between(rng, 20*time.Millisecond, 300*time.Millisecond), f)
}

// stall lets nothing through until its end.
func stall(ctx context.Context, s *Stack, rng *rand.Rand, f *Fault) {
	hinder(ctx, s, rng, time.Hour, f)
}

// hinder delays one proxy's connections for a while. A delay that hit nothing
// is not told.
func hinder(ctx context.Context, s *Stack, rng *rand.Rand, by time.Duration, f *Fault) {
	p := s.carrier(rng)
	if p == nil {
		return
	}
	d := p.begin(by)
	if d == nil { // another fault delays it already
		return
	}
	timer := time.NewTimer(between(rng, time.Second, 5*time.Second))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-d.over: // healed
	case <-ctx.Done():
	}
	d.end()
	if f.Count = int(d.hit.Load()); f.Count > 0 {
		f.Target = p.name
	}
}
