package loadgen

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"
)

// OpenLoop offers requests at a constant rate, whatever becomes of the ones before.
type OpenLoop struct {
	Rate        float64
	During      time.Duration
	Connections int
	Patience    time.Duration // a request that finds no free connection for so long is not sent; 0: a minute
}

// Answers is what came of the requests.
type Answers struct {
	Offered  int
	Unsent   int           // for lack of a connection
	Took     time.Duration // until the last answer
	FromDue  Latencies     // since the request was due
	FromSent Latencies     // since it was sent
}

// NewAnswers has none yet.
func NewAnswers() Answers { return Answers{FromDue: Latencies{}, FromSent: Latencies{}} }

// Submit submits jobs. If not all are accepted it reports an error.
func (o OpenLoop) Submit(ctx context.Context, to Target) (Answers, error) {
	client := NewClient(o.Connections)
	defer client.CloseIdleConnections()
	got := o.Run(ctx, func() func() int { return NewSubmission(client, to).Status })
	if refused := got.Offered - got.Count(http.StatusAccepted); refused > 0 {
		return got, fmt.Errorf("%d of %d requests were not accepted: %v", refused, got.Offered, &got)
	}
	return got, nil
}

// due is when request i leaves, from the beginning.
func (o OpenLoop) due(i int) time.Duration {
	return time.Duration(float64(i) / o.Rate * float64(time.Second))
}

// Run offers requests. Each connection has a sender of its own, which sends one
// request and gives the status of the answer, 0 if there is none.
func (o OpenLoop) Run(ctx context.Context, newSender func() func() int) Answers {
	queue := make(chan time.Time, int(o.Rate*o.During.Seconds())+1) // never full: offering never waits
	total := NewAnswers()
	var mu sync.Mutex
	var group sync.WaitGroup
	for range o.Connections {
		group.Go(func() {
			own := o.answer(queue, newSender())
			mu.Lock()
			defer mu.Unlock()
			total.Offered += own.Offered
			total.Unsent += own.Unsent
			total.FromDue.merge(own.FromDue)
			total.FromSent.merge(own.FromSent)
		})
	}
	started := time.Now()
	for i := 0; o.due(i) < o.During && ctx.Err() == nil; i++ {
		at := started.Add(o.due(i))
		time.Sleep(time.Until(at))
		queue <- at
	}
	close(queue)
	group.Wait()
	total.Took = time.Since(started)
	return total
}

func (o OpenLoop) answer(queue <-chan time.Time, send func() int) Answers {
	own := NewAnswers()
	for at := range queue {
		own.Offered++
		sent := time.Now()
		if sent.Sub(at) > cmp.Or(o.Patience, time.Minute) {
			own.Unsent++
			continue
		}
		status := send()
		Record(own.FromDue.of(status), time.Since(at))
		Record(own.FromSent.of(status), time.Since(sent))
	}
	return own
}

// Count gives the number of answers with the given statuses.
func (a *Answers) Count(statuses ...int) int { return int(a.FromDue.all(statuses...).TotalCount()) }

// String lists the answers by status.
func (a *Answers) String() string {
	text := fmt.Sprintf("%d offered", a.Offered)
	for _, status := range slices.Sorted(maps.Keys(a.FromDue)) {
		name := fmt.Sprint(status)
		if status == 0 {
			name = "no answer"
		}
		text += fmt.Sprintf(", %d x %s (p99 %.1f ms)", a.Count(status), name, Milliseconds(a.FromSent.Quantile(99, status)))
	}
	if a.Unsent > 0 {
		text += fmt.Sprintf(", %d not sent", a.Unsent)
	}
	return text
}
