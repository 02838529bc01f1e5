package notify

import (
	"context"
	"strings"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

// Events receives the notifications of watched clients, for one process.
type Events struct {
	redis      *redisconn.Redis
	subscriber *Subscriber
	received   func(job.Notification)
	resumed    func(client job.ID)
}

// NewEvents makes a receiver that receives nothing until Start.
func NewEvents(r *redisconn.Redis) *Events {
	e := &Events{redis: r}
	e.subscriber = NewSubscriber(r, SubscriberConfig{
		Client: r.Client, Outages: redisconn.NewCircuit("receiving notifications", r.Log, nil),
		Received: e.receive, Subscribed: e.resume,
	})
	return e
}

// Start begins to receive; see Subscriber.Start. received gets each notification of watched clients; its Ended is never set.
// resumed gets a client whose notifications are received from now on, earlier ones perhaps not: when it is watched anew and after
// the connection broke. For both hold the rules of SubscriberConfig.
func (e *Events) Start(received func(job.Notification), resumed func(client job.ID)) {
	e.subscriber.start.Do(func() {
		e.received, e.resumed = received, resumed
		e.subscriber.running.Go(e.subscriber.run)
	})
}

// Stop ends receiving; see Subscriber.Stop.
func (e *Events) Stop(ctx context.Context) error { return e.subscriber.Stop(ctx) }

// Connected reports whether Redis answers; see Subscriber.Connected.
func (e *Events) Connected() bool { return e.subscriber.Connected() }

// Watch begins to receive the client's notifications, soon: resumed says when. It never waits; see Subscriber.Add.
func (e *Events) Watch(client job.ID) { e.subscriber.Add(eventChannel(client)) }

// Unwatch ends receiving the client's notifications; see Subscriber.Remove.
func (e *Events) Unwatch(client job.ID) { e.subscriber.Remove(eventChannel(client)) }

func (e *Events) resume(channel string) {
	if client, err := clientOf(channel); err == nil {
		e.resumed(client)
	}
}

func (e *Events) receive(channel, message string) {
	client, err := clientOf(channel)
	if err != nil {
		return
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(message, "\n"), "\n") {
		n, err := parseLine(client, line)
		if err != nil {
			e.redis.Metrics.Notifications.WithLabelValues(redisconn.ResultBad).Inc()
			continue
		}
		e.redis.Metrics.Notifications.WithLabelValues(redisconn.ResultReceived).Inc()
		e.received(n)
	}
}
