package experiments

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/bench/lab"
	"github.com/forgerun/forgerun/internal/bench/loadgen"
)

func TestThroughputFigures(t *testing.T) {
	t.Parallel()
	one := func(accepted int, finished, cpu float64) sample {
		return sample{accepted: loadgen.Load{Accepted: accepted, Took: time.Second, Latency: loadgen.NewHistogram()},
			path: lab.Path{Finished: finished, Jobs: 1000, Usage: lab.Usage{API: cpu}}}
	}
	service := []sample{one(7000, 500, 0.3), one(14000, 600, 0.4), one(100, 700, 0.5)}
	naive := []sample{one(1000, 100, 2), one(1000, 100, 2), one(1000, 100, 2)}
	var measured []float64
	for _, f := range throughputFigures(service, naive, []float64{7000, 7000, 100}) {
		measured = append(measured, f.Measured)
	}
	require.InDeltaSlice(t, []float64{7, 1, 6, 0.4, 0.2}, measured, 1e-9)
}
