package experiments

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/bench/yardstick"
)

func TestPeerFigures(t *testing.T) {
	t.Parallel()
	at := func(jobs int, cpu float64) yardstick.Measured {
		return yardstick.Measured{Jobs: jobs, Took: 2, CPU: cpu}
	}
	service := peerRound{insert: at(8000, 0), batch: at(30_000, 0), drain: at(6000, 0), sustained: at(6000, 3)}
	river := peerRound{insert: at(2000, 0), batch: at(30_000, 0), drain: at(12_000, 0), sustained: at(2000, 9)}
	asynq := peerRound{sustained: at(12_000, 3)}
	var ok []bool
	var measured []float64
	for _, f := range peerFigures([]peerRound{service}, []peerRound{river}, []peerRound{asynq}) {
		ok, measured = append(ok, f.OK), append(measured, f.Measured)
	}
	require.InDeltaSlice(t, []float64{0.5, 3, 4, 1, 0.5, 2}, measured, 1e-9)
	require.Equal(t, []bool{false, true, true, false, false, false}, ok)
	require.Equal(t, "sustained 6000/s with 0.250 s of CPU per 1,000 jobs", asynq.String())
}
