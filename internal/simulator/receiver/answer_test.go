package receiver

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDrawFollowsSharesAndIsRepeatable(t *testing.T) {
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
	// 0.46 = 1 - (0.7² + 0.2² + 0.1²): the probability that two independent draws differ.
	require.InDelta(t, 0.46, float64(otherSeed)/messages, 0.02)
	require.InDelta(t, 0.46, float64(otherTry)/messages, 0.02)
}
