package queue

import (
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/forgerun/forgerun/tasks/redisconn"
)

// ReadsJSON is the priority that consumers give their only queue, for which asynq has no use: so those who enqueue can tell them
// from consumers of the version before, which give 1 and read no payload but a name.
const ReadsJSON = 2

// readersEvery is how often the consumers are asked for while tasks are enqueued.
const readersEvery = 2 * time.Second

// readers knows which queues have a consumer of the version before. A task that it cannot read is archived by it, and the probe
// dispatches the job anew: so it does not matter that a consumer is noticed late.
type readers struct {
	inspector *asynq.Inspector

	mu    sync.Mutex
	asked time.Time
	old   map[string]bool // by queue; nil: unknown
}

func newReaders(r *redisconn.Redis) *readers {
	return &readers{inspector: asynq.NewInspectorFromRedisClient(r.Client)}
}

// readNames reports whether all payloads of the queue must be names.
func (r *readers) readNames(queue string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.asked) > readersEvery {
		r.ask()
	}
	return r.old == nil || r.old[queue]
}

// ask asks Redis. If it fails, what was known holds.
func (r *readers) ask() {
	servers, err := r.inspector.Servers()
	r.asked = time.Now()
	if err != nil {
		return
	}
	r.old = map[string]bool{}
	for _, s := range servers {
		for name, priority := range s.Queues {
			r.old[name] = r.old[name] || priority < ReadsJSON
		}
	}
}
