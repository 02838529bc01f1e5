package main

import (
	"context"
	"time"
)

// due is when request i of a constant rate leaves, from the beginning.
func due(i int, rate float64) time.Duration {
	return time.Duration(float64(i) / rate * float64(time.Second))
}

// offered is what came of submissions at a constant rate.
type offered struct {
	paced
	sent     int
	statuses map[int]int // answers by status; 0: no answer
}

// quantile of the answers of one status, from the moment at which a request was
// due; 0 if there were none.
func (o offered) quantile(status int, q float64) time.Duration {
	if o.fromDue[status] == nil {
		return 0
	}
	return quantile(o.fromDue[status], q)
}

// openLoop submits jobs at a constant rate for the given time, whatever becomes
// of the ones before. So many connections can wait for their answers at once; when
// all do, requests wait here, and their latency counts from when they were due.
func openLoop(ctx context.Context, sys system, rate float64, d time.Duration, connections int) offered {
	client := newClient(connections)
	defer client.CloseIdleConnections()
	p := pace(ctx, pacing{rate: rate, during: d, connections: connections, patience: time.Minute}, func() func() int {
		return newSubmission(client, sys).status
	})
	o := offered{paced: p, sent: p.offered, statuses: map[int]int{}}
	for status, latency := range p.fromDue {
		o.statuses[status] = int(latency.TotalCount())
	}
	return o
}
