package tasks

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/job"
)

const (
	// newsPause is how long the sending of news rests: what is announced meanwhile
	// goes together, and much of it is of the same jobs and clients.
	newsPause = 5 * time.Millisecond
	// newsBuffer is how many news may wait to be sent.
	newsBuffer = 16384
	// maxNews is how many news one round trip sends.
	maxNews = 1000
	// maxMessage is after how many bytes a client's news go on in another
	// message.
	maxMessage = 32 << 10
)

// Publish tells whoever watches the client's jobs that something happened,
// soon, and keeps the job's progress in Redis until the attempt has ended. It
// never waits and reports nothing: news that find the buffer full or Redis down
// are dropped and counted. News of a job arrive in their order; several events
// may arrive as one, and of several progresses of an attempt the latest.
//
// n.Progress must not be changed afterwards. News with Ended name the attempt;
// whoever announced its progress announces its end, too.
func (q *Queue) Publish(n job.Notification) {
	if q.stopped.Load() {
		q.countNews(resultDropped, 1)
		return
	}
	select {
	case q.news <- n:
	default:
		q.countNews(resultDropped, 1)
	}
}

func (q *Queue) countNews(result string, n int) {
	q.redis.metrics.news.WithLabelValues(result).Add(float64(n))
}

// sendNews sends what came since the sending before.
func (q *Queue) sendNews() {
	d := newDigest()
	for {
		select {
		case n := <-q.news:
			d.add(n)
			q.collect(d)
			q.tell(d)
			if len(q.news) < maxNews {
				pauseFor(newsPause, q.stopping)
			}
		case <-q.stopping:
			for q.collect(d); d.news > 0; q.collect(d) {
				q.tell(d)
			}
			return
		}
	}
}

// collect adds the news that wait.
func (q *Queue) collect(d *digest) {
	for d.news < maxNews {
		select {
		case n := <-q.news:
			d.add(n)
		default:
			return
		}
	}
}

// tell sends the digest and empties it.
func (q *Queue) tell(d *digest) {
	defer d.reset()
	select {
	case <-q.abort:
		q.countNews(resultDropped, d.news)
		return
	default:
	}
	if !q.telling.allow() {
		q.countNews(resultSkipped, d.news)
		return
	}
	err := q.redis.failed("news", q.sendReport(d.report()))
	q.telling.report(err)
	if err != nil {
		q.countNews(resultFailed, d.news)
		return
	}
	q.countNews(resultOK, d.news)
}

// sendReport sends all in one round trip, progress first: whoever hears of it
// can read it. The error is that of the messages. A Redis that has no room for
// progress still passes them on.
func (q *Queue) sendReport(r report) error {
	if len(r.messages) == 0 && len(r.kept) == 0 {
		return nil
	}
	ctx := context.Background()
	pipe := q.redis.client.Pipeline()
	for _, k := range r.kept {
		q.keepProgress(ctx, pipe, k)
	}
	for _, m := range r.messages {
		// In a cluster all news of a client go to one node, in their order.
		pipe.Publish(ctx, newsChannel(m.client), m.text).SetFirstKeyPos(1)
	}
	commands, _ := pipe.Exec(ctx)
	_ = q.redis.failed("progress", firstError(commands[:len(r.kept)]))
	return firstError(commands[len(r.kept):])
}

func firstError(commands []redis.Cmder) error {
	for _, c := range commands {
		if err := c.Err(); err != nil {
			return err
		}
	}
	return nil
}
