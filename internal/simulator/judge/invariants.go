package judge

// Invariant is one thing that must hold after anything.
type Invariant struct{ Key, Title string }

// Keys of the invariants: the ten of the design, and those that only a client can
// see.
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
)

// Invariants lists all that Judge looks at.
var Invariants = []Invariant{
	{accepted, "Every 202 has its job, and no job is without its request"},
	{ended, "Every attempt ends once, with outcome, report and terminal event, or waits for its time"},
	{logged, "Each log is numbered from 1, a chain of allowed transitions, and never runs backwards"},
	{early, "Nothing starts before its execution_at"},
	{fenced, "Every claim has its fence, and nothing of a stale worker is visible"},
	{keyed, "One idempotency key, one job"},
	{foreign, "Nothing of another client, and nothing forged, in any answer, stream or delivery"},
	{delivered, "Each event has its one delivery to each subscriber, and DELIVERED means answered with 2xx"},
	{measured, "Metrics agree with the rows"},
	{tasked, "At rest no task is queued without its job"},
	{answered, "Each answer tells what was so at its time"},
	{streamed, "Each event is on its client's stream exactly once, in the order of its job"},
	{received, "What receivers get is a known event, unchanged from try to try"},
	{timed, "Durations are what lies between start and end, and as long as the work"},
	{expected, "Each work kind ends as the catalogue says"},
}

// sources says what each invariant is judged by at the end; where one of them is
// missing, the invariant is checked in part or not at all.
var sources = map[string][]Source{
	accepted: {Lists, Rows}, ended: {Lists, Reports, Rows}, logged: {Reports, Rows}, early: {Reports, Rows}, fenced: {Rows},
	keyed: {Lists, Rows}, foreign: {Lists, Rows}, delivered: {Reports, Rows}, measured: {Rows, Metrics}, tasked: {Rows, Queue},
	answered: {Lists, Reports, Rows}, streamed: {Rows}, received: {Rows}, timed: {Reports, Rows}, expected: {Reports, Rows},
}
