package main

import (
	"context"

	"github.com/forgerun/forgerun/internal/bench/experiments"
	"github.com/forgerun/forgerun/internal/bench/figures"
	"github.com/forgerun/forgerun/internal/bench/lab"
	"github.com/forgerun/forgerun/internal/bench/scale"
)

// kind is how much of a machine's time a run takes. Each kind has the experiments of
// the kinds before it too.
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
	run   func(context.Context, *lab.Lab) ([]figures.Figure, error)
}

// all experiments, in the order in which they run.
var all = []experiment{
	{"throughput", quick, "submission and the whole path, next to the naive way and to pgbench", experiments.Throughput},
	{"peers", standard, "the same jobs through River and through asynq alone", experiments.Peers},
	{"half", quick, "submission at half of the maximum rate", experiments.HalfRate},
	{"idle", quick, "single jobs when there is nothing to do, and what waiting for them costs", experiments.Idle},
	{"redis", standard, "submission while Redis is slow or stopped", experiments.RedisOutage},
	{"scheduled", standard, "100,000 jobs that are due in the same second", scale.Scheduled},
	{"running-10k", standard, "10,000 jobs at once in one worker process", scale.Running},
	{"scaling", standard, "one, two and four worker processes", scale.WorkerProcesses},
	{"overload", standard, "twice as many jobs as can be taken", scale.Overload},
	{"finished-5m", full, "5 million finished jobs in the tables", scale.Finished},
	{"queued-1m", full, "1 million jobs in the queue", scale.Queued},
	{"start-1m", full, "the start of an api process with 1 million live jobs", scale.Start},
	{"bulk", full, "100,000 failed jobs retried in one operation, beside submissions", scale.Bulk},
	{"deliveries", full, "webhooks: deliveries to a fast receiver", experiments.Deliveries},
	{"observability", full, "what metrics, logs and scrapes cost", experiments.Observability},
	{"generator", full, "the simulator's load generator, which must not limit a run", experiments.Generator},
}
