package job

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWeight(t *testing.T) {
	t.Parallel()
	event := PlannedEvent{Emission: Emission{Name: "x", Data: []byte("1")}}
	for name, c := range map[string]struct {
		d    Definition
		want int
	}{
		"ordinary":         {Definition{PayloadSize: 4 * kib}, 0},
		"a whole unit":     {Definition{PayloadSize: 16 * kib}, 0},
		"a larger result":  {Definition{PayloadSize: 40 * kib}, 2},
		"events":           {Definition{Behavior: &Behavior{Emit: []PlannedEvent{event, event}}}, 8},
		"an emitted event": {Definition{Emit: &Emission{Name: "x"}}, 1},
		"with large data":  {Definition{Emit: &Emission{Name: "x", Data: make([]byte, 17*kib)}}, 2},
	} {
		j := Job{Definition: &c.d, MaxAttempts: 4, Params: make([]byte, 16*kib)}
		require.Equal(t, c.want, j.Weight(1), name)
		require.Equal(t, c.want+5, j.Weight(10), "%s to ten receivers", name)
		j.Params = make([]byte, 256*kib)
		require.Equal(t, c.want+15, j.Weight(0), name)
	}
	header := map[string][]string{"X": {string(make([]byte, kib-1))}}
	require.Zero(t, (&DeliveryAttempt{Header: header}).Weight())
	require.Equal(t, 1, (&DeliveryAttempt{Header: header, Body: make([]byte, MaxStoredBody)}).Weight())
}

func TestEmitted(t *testing.T) {
	t.Parallel()
	twice := &Behavior{Emit: make([]PlannedEvent, 2)}
	for want, r := range map[int]Request{
		0: {}, 1: {Emit: &Emission{Name: "x"}}, 8: {Behavior: twice}, 18: {Behavior: twice, Retry: &RetryPolicy{MaxAttempts: 9}},
	} {
		require.Equal(t, want, r.Emitted(4))
	}
}
