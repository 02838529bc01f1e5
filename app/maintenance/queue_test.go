package maintenance

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

const testStream = "outcomes"

// fakeQueue has the jobs' tasks, and the stream of outcomes.
type fakeQueue struct {
	*apptest.Queue
	tasks   map[job.ID]bool
	ensured [][]job.Task // by each call, in order

	stream      []job.StreamEntry
	added       int  // entries of all streams that there were
	appendsLost bool // an error of AppendOutcomes comes after the entries are there
}

func newFakeQueue(q *apptest.Queue) *fakeQueue { return &fakeQueue{Queue: q, tasks: map[job.ID]bool{}} }

func (q *fakeQueue) Ensure(_ context.Context, tasks []job.Task) (made int, err error) {
	q.Change(func() {
		if err = q.Err; err != nil {
			return
		}
		q.ensured = append(q.ensured, slices.Clone(tasks))
		for _, t := range tasks {
			if !q.tasks[t.JobID] {
				q.tasks[t.JobID] = true
				made++
			}
		}
	})
	return made, err
}

func (q *fakeQueue) Mend(context.Context) (err error) {
	q.Change(func() { err = q.Err })
	return err
}

func (*fakeQueue) EnsureDeliveries(context.Context, []job.DeliveryTask) (int, error) { return 0, nil }

func (*fakeQueue) RemoveDeliveries(...job.ID) {}

func (q *fakeQueue) LastOutcome(context.Context, string) (last string, err error) {
	q.Change(func() { last, err = q.last(), q.Err })
	return last, err
}

// last returns the id of the stream's last entry.
func (q *fakeQueue) last() string {
	if len(q.stream) == 0 {
		return ""
	}
	return strconv.Itoa(q.added)
}

func (q *fakeQueue) AppendOutcomes(
	_ context.Context, stream string, maxLen int64, entries []job.StreamEntry,
) (before, last string, err error) {
	if stream != testStream || maxLen != streamLength {
		return "", "", errors.New("another stream")
	}
	q.Change(func() {
		before = q.last()
		if q.Err == nil || q.appendsLost {
			q.stream, q.added = append(q.stream, entries...), q.added+len(entries)
		}
		last, err = q.last(), q.Err
	})
	return before, last, err
}

// flush empties the queue and the stream.
func (q *fakeQueue) flush() {
	q.Change(func() {
		clear(q.tasks)
		q.stream = nil
	})
}
