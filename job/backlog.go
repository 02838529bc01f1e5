package job

import "time"

// Backlog is what there is to do in the whole system and who is there to do it,
// counted at one moment (section 16).
type Backlog struct {
	// Jobs by state, those that are not final. No state is counted beyond the
	// limit that the count was given.
	Jobs map[State]int
	// OldestDue is for how long the job that waits longest could have run: its
	// time has come and no worker has taken it. 0 if none waits.
	OldestDue time.Duration
	// Epoch of the dispatch.
	Epoch int64

	Workers int // whose lease has not ended
	Slots   int // jobs that these can hold at once

	Deliveries       int           // pending, up to the limit
	OldestDelivery   time.Duration // for how long the longest waiting one has been due; 0 if none is
	DisabledWebhooks int           // disabled by the server, up to the limit
}
