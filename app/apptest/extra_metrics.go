package apptest

import (
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// executions gives what job_execution_seconds has observed for an outcome: how often,
// and the sum.
func (w *World) Executions(outcome job.State) (n uint64, sum float64) {
	families, err := w.Registry.Gather()
	require.NoError(w.T, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "job_execution_seconds" && m.GetLabel()[0].GetValue() == string(outcome) {
				n += m.GetHistogram().GetSampleCount()
				sum += m.GetHistogram().GetSampleSum()
			}
		}
	}
	return n, sum
}

// exemplars gives the traces that a histogram names.
func (w *World) Exemplars(name string) (traces []string) {
	families, err := w.Registry.Gather()
	require.NoError(w.T, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, b := range m.GetHistogram().GetBucket() {
				if e := b.GetExemplar(); f.GetName() == name && e != nil {
					traces = append(traces, e.GetLabel()[0].GetValue())
				}
			}
		}
	}
	return traces
}
