package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"time"
)

// WithSession returns a client that sends this session label to the test bed. Both clients use the same connections. Use a different label
// for each test. The service refuses labels that are longer than 200 characters or not ASCII.
func (c *Client) WithSession(label string) *Client {
	other := *c
	other.setSession(label)
	return &other
}

func (c *Client) setSession(label string) {
	c.session, c.sessionErr = label, nil
	if !fieldValue(label) {
		c.sessionErr = errors.New("client: the session has characters that a header cannot have")
	}
}

// VerdictAs returns a verdict in another format: JUnit XML (application/xml) or a page (text/html).
func (c *Client) VerdictAs(ctx context.Context, id, mediaType string, options ...Option) ([]byte, error) {
	r := get(options, "testbed", "sessions", id, "verdict")
	r.raw = true
	r.set("Accept", mediaType)
	a, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	return a.body, nil
}

const maxJournal = 256 << 20

// Journal iterates over the records on which a verdict is based.
func (c *Client) Journal(ctx context.Context, id string, options ...Option) iter.Seq2[JournalEntry, error] {
	return func(yield func(JournalEntry, error) bool) {
		r := get(options, "testbed", "sessions", id, "journal")
		r.limit, r.wait, r.raw = maxJournal, resultTime, true
		r.set("Accept", "application/x-ndjson, application/problem+json")
		a, err := c.send(ctx, r)
		if err != nil {
			yield(JournalEntry{}, err)
			return
		}
		for lines := json.NewDecoder(bytes.NewReader(a.body)); lines.More(); {
			var e JournalEntry
			if err := lines.Decode(&e); err != nil {
				yield(e, r.unexpected(a, "it is no journal"))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// AdvanceClock advances the clock of the whole service. It returns after all jobs that became due are QUEUED.
func (c *Client) AdvanceClock(ctx context.Context, by time.Duration, options ...Option) (*Clock, error) {
	return c.moveClock(ctx, options, "advance", by.String())
}

// SetClock sets the clock to a time, which must not be before the clock's present time.
func (c *Client) SetClock(ctx context.Context, to time.Time, options ...Option) (*Clock, error) {
	return c.moveClock(ctx, options, "set", apiTime(to))
}

// FreezeClock stops the clock.
func (c *Client) FreezeClock(ctx context.Context, options ...Option) (*Clock, error) {
	return c.moveClock(ctx, options, "freeze", true)
}

// ThawClock lets a frozen clock continue at its previous rate.
func (c *Client) ThawClock(ctx context.Context, options ...Option) (*Clock, error) {
	return c.moveClock(ctx, options, "freeze", false)
}

// SetClockRate sets the rate of the clock, from 0.1 to 3,600. It also restarts a frozen clock.
func (c *Client) SetClockRate(ctx context.Context, rate float64, options ...Option) (*Clock, error) {
	return c.moveClock(ctx, options, "rate", rate)
}

func (c *Client) moveClock(ctx context.Context, options []Option, how string, value any) (*Clock, error) {
	return fetch[Clock](ctx, c, post(options, "testbed", "clock").with(map[string]any{how: value}).keyed())
}
