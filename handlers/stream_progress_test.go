package handlers

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestProgressOnAStream(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	th.history.record(jobID, allOfAJob...)
	th.history.progress(jobID, 1, 10)
	r := th.open(jobStream)
	r.events("job-created", "job-queued", "job-assigned", "job-running")
	require.Equal(t, 10, r.next().percentage(t), "what is known already")
	th.history.watched(t, 1)
	for _, p := range []int{30, 20, 30, 40} {
		th.history.progress(jobID, 1, p)
	}
	last := 10
	for last < 40 {
		p := r.next().percentage(t)
		require.Greater(t, p, last, "never back")
		last = p
	}
	th.history.progress(jobID, 1, 60)
	th.history.record(jobID, job.EventSucceeded)
	b := r.next()
	if b.percentage(t) == 60 {
		b = r.next()
	}
	require.Equal(t, 100, b.percentage(t))
	require.JSONEq(t,
		`{"job_id":"`+jobID.String()+`","attempt":1,"progress":{"percentage":100,"phase":"DONE","steps_completed":100,"steps_total":100,
		"items_processed":7,"items_total":7,"updated_at":"2030-01-31T12:00:00.127456Z"}}`, b.data)
	r.events("job-succeeded")
	r.end()
}

// A stream that begins in the middle of an attempt shows its progress too, and
// the last that was heard comes before a failure.
func TestProgressAfterResuming(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	th.history.record(jobID, allOfAJob...)
	th.history.progress(jobID, 1, 10)
	r := th.open(jobStream, "Last-Event-ID", "4")
	require.Equal(t, 10, r.next().percentage(t))
	th.history.change(func() { // progress and event at once, as the hub merges them
		h := th.history
		h.append(jobID, job.EventFailed)
		p := &job.Progress{Percentage: 70, UpdatedAt: now}
		h.publish(job.Notification{ClientID: clientA, JobID: jobID, Attempt: 1, Progress: p, Ended: true})
	})
	require.Equal(t, 70, r.next().percentage(t))
	r.events("job-failed")
	r.end()
}

func TestProgressOfAttempts(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	th.history.record(jobID, allOfAJob...)
	r := th.open(jobStream)
	r.events("job-created", "job-queued", "job-assigned", "job-running")
	th.history.progress(jobID, 1, 50)
	require.Equal(t, 50, r.next().percentage(t))
	th.history.record(jobID, job.EventFailed, job.EventRetried)
	r.events("job-failed", "job-retried")
	th.history.progress(jobID, 1, 80) // late
	th.history.progress(jobID, 2, 5)  // early: the event is not there yet
	th.history.record(jobID, job.EventAssigned, job.EventRunning)
	r.events("job-assigned", "job-running")
	require.Equal(t, 5, r.next().percentage(t), "begins anew")
	th.history.record(jobID, job.EventCanceled)
	r.events("job-canceled")
	r.end()
}

// Without any progress shown, none is made up.
func TestNoProgressNoLastStep(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	th.history.record(jobID, allOfAJob...)
	r := th.open(jobStream)
	r.events("job-created", "job-queued", "job-assigned", "job-running")
	th.history.record(jobID, job.EventSucceeded)
	r.events("job-succeeded")
	r.end()
}

func TestProgressIsNotOnTheClientsStream(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	r := th.open(clientStream)
	th.history.watched(t, 1)
	th.history.record(jobID, allOfAJob...)
	th.history.progress(jobID, 1, 10)
	th.history.record(jobID, job.EventSucceeded)
	r.events("job-created", "job-queued", "job-assigned", "job-running", "job-succeeded")
}

// The last progress may be told while the end of the attempt is being read.
func TestLastProgressComesBeforeTheEnd(t *testing.T) {
	t.Parallel()
	var th *streamServer
	var ending atomic.Bool
	th = newStreamServer(t, func(_ *Config, d *Deps) {
		d.Events = hooked{Events: d.Events, read: func() {
			if ending.Swap(false) {
				th.history.progress(jobID, 1, 90)
				th.history.change(func() { th.history.append(jobID, job.EventCanceled) })
			}
		}}
	})
	th.history.record(jobID, allOfAJob...)
	r := th.open(jobStream)
	r.events("job-created", "job-queued", "job-assigned", "job-running")
	th.history.progress(jobID, 1, 20)
	require.Equal(t, 20, r.next().percentage(t))
	ending.Store(true)
	th.history.record(jobID, job.EventEmitted)
	r.events("event-emitted")
	require.Equal(t, 90, r.next().percentage(t))
	r.events("job-canceled")
	r.end()
}
