package judge

// Invariant is one thing that must hold after anything.
type Invariant struct {
	Key, Title string
	sources    []Source // that it needs at the end: without one, it is checked in part or not at all
}

// Keys of the invariants.
const (
	accepted  = "accepted"
	ended     = "final"
	logged    = "log"
	early     = "early"
	fenced    = "fence"
	keyed     = "key"
	foreign   = "foreign"
	delivered = "delivery"
	measured  = "metrics"
	tasked    = "queue"
	answered  = "answers"
	streamed  = "stream"
	received  = "received"
	timed     = "duration"
	expected  = "catalogue"
	scheduled = "schedule"
)

// Invariants are all that Judge checks.
var Invariants = []Invariant{
	{accepted, "Every 202 has its job, and no job is without its request", []Source{Lists, Rows}},
	{ended, "Every attempt ends once, with outcome, report and terminal event, or waits for its time", []Source{Lists, Reports, Rows}},
	{logged, "Each log is numbered from 1, a chain of allowed transitions, and never runs backwards", []Source{Reports, Rows}},
	{early, "Nothing starts before its execution_at", []Source{Reports, Rows}},
	{fenced, "Every claim has its fence, and nothing of a stale worker is visible", []Source{Rows}},
	{keyed, "One idempotency key, one job", []Source{Lists, Rows}},
	{foreign, "Nothing of another client, and nothing forged, in any answer, stream or delivery", []Source{Lists, Rows}},
	{delivered, "Each event has its one delivery to each subscriber, and DELIVERED means answered with 2xx", []Source{Reports, Rows}},
	{measured, "Metrics agree with the rows", []Source{Rows, Metrics}},
	{tasked, "At rest no task is queued without its job", []Source{Rows, Queue}},
	{answered, "Each answer shows what was so at its time", []Source{Lists, Reports, Rows}},
	{streamed, "Each event is on its client's stream exactly once, in the order of its job", []Source{Rows}},
	{received, "What receivers get is a known event, unchanged from try to try", []Source{Rows}},
	{timed, "Durations are what lies between start and end, and as long as the work", []Source{Reports, Rows}},
	{expected, "Each work kind ends as the catalogue says", []Source{Reports, Rows}},
	{scheduled, "Each due time of a schedule has one job, none early, and no other time has one", []Source{Lists, Rows}},
}
