package load

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// The states of a job (section 9).
const (
	created   = "CREATED"
	queued    = "QUEUED"
	assigned  = "ASSIGNED"
	running   = "RUNNING"
	succeeded = "SUCCEEDED"
	failed    = "FAILED"
	canceled  = "CANCELED"
)

// rank orders the states of an attempt, so that a late update does not set a
// job back.
var rank = map[string]int{created: 1, queued: 2, assigned: 3, running: 4, succeeded: 5, failed: 5, canceled: 5}

func isFinal(state string) bool { return rank[state] == rank[succeeded] }

// jobs are those whose end is not known yet. One that is final and of which
// nothing more is expected is forgotten, so that a long run needs no more memory
// than a short one.
type jobs struct {
	seed maphash.Seed
	// streamed: a job is kept until its end was streamed, even if a poll or the
	// answer to a cancel was quicker. The event would else look like a new job's.
	streamed bool
	shards   [64]shard
	open     atomic.Int64
	turn     atomic.Int64 // the shard that silent begins with
	moved    func(from, to string)
	ended    func(*job) // nothing more is expected of it
}

type shard struct {
	mu   sync.Mutex
	byID map[string]*job
}

// job is what is known of one job. An event may be quicker than the answer to
// the submission: such a job has no ticket yet.
type job struct {
	id       string
	ticket   int64
	tenant   int
	intended time.Time
	waits    time.Time // execution_at, zero without one
	state    string
	attempt  int
	last     time.Time // when the last update came, or when it was asked for

	autoRetry bool // the server goes on after a failure that may pass
	held      int  // by whom more is expected of it: it is not forgotten
	finished  bool
	streamed  bool // the end of this attempt
	// changed is closed at the next update, and made when somebody waits for it.
	changed chan struct{}
}

func newJobs(streamed bool, moved func(from, to string), ended func(*job)) *jobs {
	j := &jobs{seed: maphash.MakeSeed(), streamed: streamed, moved: moved, ended: ended}
	for i := range j.shards {
		j.shards[i].byID = map[string]*job{}
	}
	return j
}

func (js *jobs) shard(id string) *shard {
	return &js.shards[maphash.String(js.seed, id)%uint64(len(js.shards))]
}

// locked calls fn with the job, which is made if it is not known, and forgets it
// afterwards if nothing more is expected of it.
func (js *jobs) locked(id string, fn func(*job)) {
	s := js.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.byID[id]
	if j == nil {
		j = &job{id: id, attempt: 1}
		s.byID[id] = j
		js.open.Add(1)
	}
	fn(j)
	if j.ticket != 0 && js.over(j) && j.held == 0 {
		delete(s.byID, id)
		js.open.Add(-1)
		js.ended(j)
	}
}

// over reports whether nothing more is to be learned of the job.
func (js *jobs) over(j *job) bool { return j.finished && (j.streamed || !js.streamed) }

// accepted notes which ticket a job belongs to; fill writes that down. hold
// keeps it until release.
func (js *jobs) accepted(id, state string, hold bool, fill func(*job)) {
	js.locked(id, func(j *job) {
		fill(j)
		if hold {
			j.held++
		}
		js.update(j, update{state: state, attempt: 1, at: time.Now()})
	})
}

// release gives back what accepted held.
func (js *jobs) release(id string) {
	js.locked(id, func(j *job) { j.held-- })
}

// update is what was learned of a job: its state in an attempt.
type update struct {
	state   string
	attempt int
	at      time.Time
	// retryable: a failure after which the server goes on, if it was asked to.
	retryable bool
	streamed  bool // by the stream
}

// saw takes an update of a job.
func (js *jobs) saw(id string, n update) {
	js.locked(id, func(j *job) { js.update(j, n) })
}

// exhausted notes that the server has given up retrying the job by itself. A job
// that was forgotten at its end is not brought back by that.
func (js *jobs) exhausted(id string) {
	s := js.shard(id)
	s.mu.Lock()
	known := s.byID[id] != nil
	s.mu.Unlock()
	if known {
		js.locked(id, func(j *job) { j.finished = isFinal(j.state) })
	}
}

func (js *jobs) update(j *job, n update) {
	if n.streamed && n.attempt >= j.attempt {
		j.streamed = isFinal(n.state)
	}
	newer := n.attempt > j.attempt || n.attempt == j.attempt &&
		(rank[n.state] > rank[j.state] || n.state == queued && j.state == assigned)
	if !newer {
		return
	}
	if n.attempt > j.attempt && !n.streamed {
		j.streamed = false // that was the end of the attempt before
	}
	js.moved(j.state, n.state)
	j.state, j.attempt, j.last = n.state, n.attempt, n.at
	j.finished = isFinal(n.state) && !(n.state == failed && n.retryable && j.autoRetry)
	if j.changed != nil {
		close(j.changed)
		j.changed = nil
	}
}

// look gives the job's state and attempt, and a channel that is closed at its
// next update. The job must be held.
func (js *jobs) look(id string) (state string, attempt int, changed <-chan struct{}) {
	js.locked(id, func(j *job) {
		if j.changed == nil {
			j.changed = make(chan struct{})
		}
		state, attempt, changed = j.state, j.attempt, j.changed
	})
	return state, attempt, changed
}

// owner returns whose job it is, while its end is not known.
func (js *jobs) owner(id string) (tenant int, known bool) {
	s := js.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.byID[id]
	if j == nil || j.ticket == 0 {
		return 0, false
	}
	return j.tenant, true
}

// silent picks jobs whose end is not known and of which there was no update for the
// given time, at most limit of them. One that was picked counts as heard of: the
// next call picks others.
func (js *jobs) silent(quiet time.Duration, limit int) (list []job) {
	now := time.Now()
	first := int(js.turn.Add(1))
	for i := range js.shards {
		s := &js.shards[(first+i)%len(js.shards)]
		s.mu.Lock()
		for _, j := range s.byID {
			if len(list) < limit && j.ticket != 0 && !j.finished && now.Sub(j.last) >= quiet {
				j.last = now
				list = append(list, *j)
			}
		}
		s.mu.Unlock()
	}
	return list
}

// waiting counts the jobs that are not final and not scheduled beyond the given
// time.
func (js *jobs) waiting(until time.Time) (n int) {
	for i := range js.shards {
		s := &js.shards[i]
		s.mu.Lock()
		for _, j := range s.byID {
			if !js.over(j) && !(j.state == created && j.waits.After(until)) {
				n++
			}
		}
		s.mu.Unlock()
	}
	return n
}
