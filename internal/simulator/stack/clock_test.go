package stack

import (
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// drawn gives the move of a seed, as a fault draws it, without its amount.
func drawn(seed uint64) (m clockMove, kind string) {
	m = drawMove(rand.New(rand.NewPCG(seed, 0)))
	kind, _, _ = strings.Cut(strings.TrimPrefix(m.what, "clock, "), " ")
	return m, kind
}

func TestMovesAreDrawnByTheSeed(t *testing.T) {
	t.Parallel()
	times, longest := map[string]int{}, time.Duration(0)
	for seed := range uint64(500) {
		m, kind := drawn(seed)
		again, _ := drawn(seed)
		require.Equal(t, m, again)
		times[kind]++
		var body struct {
			Advance string
			Freeze  bool
			Rate    float64
		}
		require.NoError(t, json.Unmarshal([]byte(m.body), &body))
		by, _ := time.ParseDuration(body.Advance)
		longest = max(longest, by)
		require.Equal(t, kind == "ahead", by > 0)
		require.Equal(t, kind == "ahead", m.lasts == 0)
		require.Equal(t, kind == "frozen", body.Freeze)
		require.Equal(t, kind == "at", body.Rate >= leastRate && body.Rate <= mostRate)
	}
	require.Len(t, times, 3, "%v", times)
	require.Greater(t, times["ahead"], times["frozen"])
	require.Greater(t, longest, mostAdvance*9/10)
	require.LessOrEqual(t, longest, mostAdvance)
}

// TestTheClockIsMovedAndHealed moves the clock of a real service in each way, and wants it to run as usual afterwards.
func TestTheClockIsMovedAndHealed(t *testing.T) {
	t.Parallel()
	s := startReal(t, Options{Clock: true})
	c, err := ParseChaos("clock=1s")
	require.NoError(t, err)
	require.True(t, c.MovesClock())
	require.NoError(t, c.Check(s))

	seen := map[string]bool{}
	for seed := uint64(1); len(seen) < 3; seed++ {
		if m, kind := drawn(seed); !seen[kind] {
			seen[kind] = true
			require.Equal(t, m.what, strikeOnce(t, s, "clock", seed).Target)
		}
	}
	require.NoError(t, s.postMove(testContext(t), `{"freeze":true}`))
	require.NoError(t, s.Heal(testContext(t)))

	request, err := http.NewRequestWithContext(testContext(t), http.MethodGet, s.URL()+"/v1/testbed/clock", nil)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+s.clockKey)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	var shown struct {
		Now    time.Time
		Rate   float64
		Frozen bool
	}
	require.NoError(t, json.Unmarshal(body, &shown), "%s", body)
	require.Equal(t, 1.0, shown.Rate)
	require.False(t, shown.Frozen)
	require.ErrorContains(t, s.postMove(testContext(t), `{"advance":"-1h"}`), "400")
}

func TestTheClockIsMovedOnATestBedAlone(t *testing.T) {
	t.Parallel()
	c, err := ParseChaos("clock=1s")
	require.NoError(t, err)
	require.ErrorContains(t, c.Check(startFake(t, "")), "chaos clock: the service was not started by the simulator as a test bed")
	require.Equal(t, "5m", Options{Clock: true, Env: map[string]string{"FORGERUN_WEBHOOK_DISABLE_AFTER": "5m"}}.
		withClockEnviron()["FORGERUN_WEBHOOK_DISABLE_AFTER"], "what is asked for holds")
	require.Empty(t, Options{}.withClockEnviron())
}
