package main

import "context"

// kind says how much of a machine's time a run may take. Each kind of run has
// the experiments of the kinds before it too.
type kind int

const (
	quick    kind = iota // about a minute
	standard             // about ten
	full                 // as long as it takes: seeding and the programs' other benchmarks
)

var kindNames = []string{"quick", "standard", "full"}

func (k kind) String() string { return kindNames[k] }

// experiment yields one figure or several.
type experiment struct {
	name  string // what -only matches
	kind  kind
	about string // one line for -list
	run   func(context.Context, *lab) ([]figure, error)
}

// experiments in the order in which they run.
var experiments = []experiment{
	{"throughput", quick, "submission and the whole path, next to the naive way and to pgbench", throughput},
	{"half", quick, "submission at half of the maximum rate", halfRate},
	{"idle", quick, "single jobs when there is nothing to do, and what waiting for them costs", idle},
	{"redis", standard, "submission while Redis is slow or stopped", redisTrouble},
	{"scheduled", standard, "100,000 jobs that are due in the same second", scaleScheduled},
	{"running-10k", standard, "10,000 jobs at once in one worker process", scaleRunning},
	{"scaling", standard, "one, two and four worker processes", scaleWorkers},
	{"overload", standard, "twice as many jobs as can be taken", scaleOverload},
	{"finished-5m", full, "5 million finished jobs in the tables", scaleFinished},
	{"queued-1m", full, "1 million jobs in the queue", scaleQueued},
	{"start-1m", full, "the start of an api process with 1 million live jobs", scaleStart},
	{"deliveries", full, "webhooks: deliveries to a fast receiver", deliveries},
	{"observability", full, "what metrics, logs and scrapes cost", observability},
	{"generator", full, "the simulator's load generator, which must not limit a run", generator},
}
