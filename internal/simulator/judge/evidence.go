package judge

import "time"

// Source is where facts at the end come from.
type Source string

// The sources.
const (
	Lists   Source = "job lists"
	Reports Source = "reports"
	Rows    Source = "rows"
	Queue   Source = "queue"
	Metrics Source = "metrics"
)

// Collected is what was found at the end beside facts, and what could not be read.
type Collected struct {
	Facts   int64             // that were added
	Asked   map[Source]bool   // sources that were asked
	Missing map[Source]string // why a source told nothing, or not everything

	Webhooks        map[string]time.Time // id to ExemptSince, of webhooks that were changed
	Inconsistencies []Inconsistency      // what RowRules found
	Measured        []Measure            // metrics with what the rows say of the same
}

// Inconsistency counts the rows that a RowRule found.
type Inconsistency struct {
	Invariant string
	What      string
	Count     int64
}

// Measure is a metric, added up over all processes, and the number of rows that
// it must equal.
type Measure struct {
	Name    string
	Metric  float64
	Rows    float64
	Counter bool // counts from the start of its process
}
