package receiver

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDrawsFollowTheSharesAndRepeat(t *testing.T) {
	t.Parallel()
	answers := []Answer{{Share: 0.7}, {Status: 503, Share: 0.2}, {Hang: true}, {Reset: true, Share: 0.1}}
	const messages = 20_000
	counts, otherSeed, otherTry := map[Answer]float64{}, 0, 0
	for i := range messages {
		subject := fmt.Sprint("message-", i)
		a := draw(answers, 1, subject, 1)
		counts[a]++
		require.Equal(t, a, draw(answers, 1, subject, 1))
		if a != draw(answers, 2, subject, 1) {
			otherSeed++
		}
		if a != draw(answers, 1, subject, 2) {
			otherTry++
		}
	}
	for _, a := range answers {
		require.InDelta(t, float64(a.Share), counts[a]/messages, 0.02, "%+v", a)
	}
	// Two independent draws differ with 1 - (0.7² + 0.2² + 0.1²).
	require.InDelta(t, 0.46, float64(otherSeed)/messages, 0.02)
	require.InDelta(t, 0.46, float64(otherTry)/messages, 0.02)
}

func TestDrawOfFewAnswers(t *testing.T) {
	t.Parallel()
	require.Equal(t, 204, shown(draw(nil, 1, "x", 1)))
	require.Equal(t, 500, shown(draw([]Answer{{Status: 500}}, 1, "x", 1)), "without a share")
	require.Zero(t, shown(Answer{Status: 200, Hang: true}))
	require.Zero(t, shown(Answer{Status: 200, Reset: true}))
}

func TestTriesAreCountedAndForgotten(t *testing.T) {
	t.Parallel()
	var counted tries
	require.Equal(t, 1, counted.add("a"))
	require.Equal(t, 2, counted.add("a"))
	for i := range rememberedTries - 1 {
		counted.add(fmt.Sprint(i))
	}
	require.Equal(t, 3, counted.add("a"), "still one of the last")
	for i := range 2 * rememberedTries {
		counted.add(fmt.Sprint("other-", i))
	}
	require.Equal(t, 1, counted.add("a"), "forgotten")
}

func TestTicketOfACorrelationID(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]int64{
		"run1.17": 17, "a.9223372036854775807": math.MaxInt64, "a.9223372036854775808": 0,
		"": 0, "run1": 0, "run1.": 0, ".5": 5, "a.b.5": 0, "a.-5": 0, "a.5x": 0,
	} {
		var m message
		m.data.CorrelationID = id
		require.Equal(t, want, m.ticket(), id)
	}
}
