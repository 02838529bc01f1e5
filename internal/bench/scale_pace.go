package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/redis/go-redis/v9"
)

// pacing says how requests are offered: so many a second, whatever becomes of
// the ones before.
type pacing struct {
	rate        float64
	during      time.Duration
	connections int
	patience    time.Duration // one that finds no free connection for so long is not sent
}

// paced is what came of offered requests, by status; status 0 is no answer.
type paced struct {
	offered  int
	unsent   int                             // for lack of a connection
	took     time.Duration                   // until the last answer
	fromDue  map[int]*hdrhistogram.Histogram // microseconds since the request was due
	fromSent map[int]*hdrhistogram.Histogram // microseconds since it was sent
}

func newPaced() paced {
	return paced{fromDue: map[int]*hdrhistogram.Histogram{}, fromSent: map[int]*hdrhistogram.Histogram{}}
}

// pace offers requests. Each connection has a sender of its own, which sends one
// request and gives the status of the answer.
func pace(ctx context.Context, p pacing, newSender func() func() int) paced {
	queue := make(chan time.Time, int(p.rate*p.during.Seconds())+1) // never full: offering never waits
	total := newPaced()
	var mu sync.Mutex
	var group sync.WaitGroup
	for range p.connections {
		group.Go(func() {
			own := answerPaced(queue, p.patience, newSender())
			mu.Lock()
			defer mu.Unlock()
			total.add(own)
		})
	}
	started := time.Now()
	for i := 0; due(i, p.rate) < p.during && ctx.Err() == nil; i++ {
		at := started.Add(due(i, p.rate))
		time.Sleep(time.Until(at))
		queue <- at
	}
	close(queue)
	group.Wait()
	total.took = time.Since(started)
	return total
}

func answerPaced(queue <-chan time.Time, patience time.Duration, send func() int) paced {
	own := newPaced()
	for at := range queue {
		own.offered++
		sent := time.Now()
		if sent.Sub(at) > patience {
			own.unsent++
			continue
		}
		status := send()
		if own.fromDue[status] == nil {
			own.fromDue[status], own.fromSent[status] = newHistogram(), newHistogram()
		}
		record(own.fromDue[status], time.Since(at))
		record(own.fromSent[status], time.Since(sent))
	}
	return own
}

func (p *paced) add(other paced) {
	p.offered += other.offered
	p.unsent += other.unsent
	for status := range other.fromDue {
		if p.fromDue[status] == nil {
			p.fromDue[status], p.fromSent[status] = newHistogram(), newHistogram()
		}
		p.fromDue[status].Merge(other.fromDue[status])
		p.fromSent[status].Merge(other.fromSent[status])
	}
}

// answers counts those of the given statuses.
func (p *paced) answers(statuses ...int) (n int) {
	for _, status := range statuses {
		if h := p.fromDue[status]; h != nil {
			n += int(h.TotalCount())
		}
	}
	return n
}

// String says what came of the requests.
func (p *paced) String() string {
	var statuses []int
	for status := range p.fromDue {
		statuses = append(statuses, status)
	}
	slices.Sort(statuses)
	text := fmt.Sprintf("%d offered", p.offered)
	for _, status := range statuses {
		name := strconv.Itoa(status)
		if status == 0 {
			name = "no answer"
		}
		text += fmt.Sprintf(", %d x %s (p99 %.1f ms)", p.answers(status), name, milliseconds(quantile(p.fromSent[status], 99)))
	}
	if p.unsent > 0 {
		text += fmt.Sprintf(", %d not sent", p.unsent)
	}
	return text
}

// errLate: what was waited for did not come in time.
var errLate = errors.New("not in time")

// poll asks again and again until the answer is yes, for the given time at most.
func poll(ctx context.Context, limit time.Duration, what string, ask func() (bool, error)) error {
	for end := time.Now().Add(limit); ; {
		yes, err := ask()
		if err != nil || yes {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: %w: %v", what, errLate, limit)
		}
		if pause(ctx, pollInterval); ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// number reads one number from the database.
func (d *database) number(ctx context.Context, sql string, args ...any) (n float64, err error) {
	err = d.conn.QueryRow(ctx, "SELECT ("+sql+")::float8", args...).Scan(&n)
	return n, err
}

// redisMemory is what the Redis server has allocated, in bytes.
func redisMemory(ctx context.Context, client *redis.Client) (float64, error) {
	info, err := client.Info(ctx, "memory").Result()
	if err != nil {
		return 0, err
	}
	return lineNumber(info, "used_memory:")
}

// lineNumber reads the number after the name that a line begins with.
func lineNumber(text, name string) (float64, error) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			if fields := strings.Fields(rest); len(fields) > 0 {
				return strconv.ParseFloat(fields[0], 64)
			}
		}
	}
	return 0, fmt.Errorf("there is no line %q", name)
}

// processMemory is a process' resident memory and the most that it ever was, in
// MB of a million bytes.
func processMemory(pid int) (now, peak float64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	now, err = lineNumber(string(status), "VmRSS:")
	if err != nil {
		return 0, 0, err
	}
	peak, err = lineNumber(string(status), "VmHWM:")
	const kib = 1024 / 1e6
	return now * kib, peak * kib, err
}
