package queue

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// orderedBatch is how many tasks one ordered exchange enqueues at most.
const orderedBatch = 256

// inOrder calls put for 0 to n-1 at once, and has the scripts that asynq runs with
// the context of each go to Redis in one pipeline, in this order.
func (q *Queue) inOrder(ctx context.Context, n int, put func(ctx context.Context, i int) error) error {
	if n == 1 {
		return put(ctx, 0)
	}
	p := &pipeline{client: q.redis.Client, commands: make([]*scriptCall, n), active: n}
	var group errgroup.Group
	for i := range n {
		group.Go(func() error {
			defer p.leave()
			return put(context.WithValue(ctx, placeKey{}, placeInPipeline{p, i}), i)
		})
	}
	return group.Wait()
}

// pipeline sends the scripts of callers that run at once, in their order, as soon
// as each of them has one or has left; again for those that have another.
type pipeline struct {
	client redis.UniversalClient

	mu       sync.Mutex
	active   int           // callers that have not left
	waiting  int           // of them, with a command
	commands []*scriptCall // by place, nil for none
}

type scriptCall struct {
	ctx    context.Context
	queue  func(p redis.Pipeliner) *redis.Cmd
	result *redis.Cmd
	done   chan struct{}
}

type placeKey struct{}

type placeInPipeline struct {
	*pipeline
	i int
}

func (p placeInPipeline) run(ctx context.Context, queue func(p redis.Pipeliner) *redis.Cmd) *redis.Cmd {
	call := &scriptCall{ctx: ctx, queue: queue, done: make(chan struct{})}
	p.mu.Lock()
	p.commands[p.i] = call
	p.waiting++
	p.sendIfComplete()
	p.mu.Unlock()
	<-call.done
	return call.result
}

func (p *pipeline) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active--
	p.sendIfComplete()
}

// sendIfComplete sends when nobody else can add a command. The caller holds the
// lock; all others wait for the answers.
func (p *pipeline) sendIfComplete() {
	if p.waiting == 0 || p.waiting < p.active {
		return
	}
	pipe := p.client.Pipeline()
	var sent []*scriptCall
	for i, call := range p.commands {
		if call == nil {
			continue
		}
		call.result = call.queue(pipe)
		sent = append(sent, call)
		p.commands[i] = nil
	}
	p.waiting = 0
	_, _ = pipe.Exec(sent[0].ctx) // each command has its own error
	for _, call := range sent {
		close(call.done)
	}
}

// scripts is the client that asynq enqueues through: scripts run in a pipeline if
// the context has a place in one.
type scripts struct{ redis.UniversalClient }

func (s scripts) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if place, ok := ctx.Value(placeKey{}).(placeInPipeline); ok {
		return place.run(ctx, func(p redis.Pipeliner) *redis.Cmd { return p.EvalSha(ctx, sha, keys, args...) })
	}
	return s.UniversalClient.EvalSha(ctx, sha, keys, args...)
}

func (s scripts) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	if place, ok := ctx.Value(placeKey{}).(placeInPipeline); ok {
		return place.run(ctx, func(p redis.Pipeliner) *redis.Cmd { return p.Eval(ctx, script, keys, args...) })
	}
	return s.UniversalClient.Eval(ctx, script, keys, args...)
}
