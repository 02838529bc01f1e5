package notify

import (
	"encoding/json"
	"log/slog"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

// The name of a client's channel is eventPrefix and the client's id. All databases of a Redis server share their channels.
const eventPrefix = "forgerun:news:"

func eventChannel(client job.ID) string { return eventPrefix + client.String() }

func clientOf(channel string) job.ID {
	id, _ := job.ParseID(strings.TrimPrefix(channel, eventPrefix)) // cannot fail: watched channels have this form
	return id
}

// Events receives the notifications of watched clients for one process.
type Events struct{ *Subscriber }

// NewEvents makes a receiver that receives nothing until Start.
func NewEvents(r *redisconn.Redis) *Events { return &Events{newSubscriber(r, r.Client, r.Log)} }

// Start starts receiving; see Subscriber.begin. It calls `received` with each notification of watched clients. In these notifications,
// Ended is never set. Start calls `resumed` for a client when its subscription begins, and again after each reconnection. Notifications
// that were sent before the call of `resumed` may be lost.
func (e *Events) Start(received func(job.Notification), resumed func(client job.ID)) {
	e.begin(func(channel, message string) {
		for line := range strings.SplitSeq(message, "\n") {
			e.receive(clientOf(channel), line, received)
		}
	}, func(channel string) { resumed(clientOf(channel)) })
}

func (e *Events) receive(client job.ID, line string, received func(job.Notification)) {
	results := e.redis.Metrics.Notifications
	var u update
	err := json.Unmarshal([]byte(line), &u)
	if err != nil || u.Progress == nil && !u.Event || u.Progress != nil && (!isPlausible(u.Progress) || u.Attempt < 1 || u.Job.IsZero()) {
		results.WithLabelValues(redisconn.ResultBad).Inc()
		return
	}
	if u.Progress != nil {
		results.WithLabelValues(redisconn.ResultReceived).Inc()
		received(job.Notification{ClientID: client, JobID: u.Job, Attempt: u.Attempt, Progress: u.Progress})
	}
	if u.Event {
		results.WithLabelValues(redisconn.ResultReceived).Inc()
		received(job.Notification{ClientID: client, JobID: u.Job})
	}
}

// Watch starts receiving the client's notifications. `resumed` (see Start) is called when the subscription has begun.
func (e *Events) Watch(client job.ID) { e.want(eventChannel(client), true) }

// Unwatch stops receiving the client's notifications.
func (e *Events) Unwatch(client job.ID) { e.want(eventChannel(client), false) }

// ReceiveCancels calls `canceled` with the ids of canceled jobs until Stop, over a connection of the given Redis client.
func ReceiveCancels(r *redisconn.Redis, client redis.UniversalClient, canceled func(job.ID)) *Subscriber {
	s := newSubscriber(r, client, slog.New(slog.DiscardHandler)) // no log of outages: asynq's own subscription logs them already
	s.want(cancelChannel, true)
	s.begin(func(_, message string) {
		id, err := job.ParseID(message)
		if err != nil {
			r.Metrics.Signals.WithLabelValues(redisconn.ResultBad).Inc()
			return
		}
		r.Metrics.Signals.WithLabelValues(redisconn.ResultReceived).Inc()
		canceled(id)
	}, func(string) {})
	return s
}
