package stack

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWorkerSchedule(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		shares []float64
		want   []int
	}{
		"4":     {[]float64{-1, 0, 0.5, 1, 2}, []int{4, 4, 4, 4, 4}},
		"1..4":  {[]float64{0, 0.24, 0.25, 0.5, 0.75, 1}, []int{1, 1, 2, 3, 4, 4}},
		"3..1":  {[]float64{0, 0.34, 0.67, 1}, []int{3, 2, 1, 1}},
		"1,4,2": {[]float64{0, 0.33, 0.34, 0.67, 1}, []int{1, 1, 4, 2, 2}},
		"2..2":  {[]float64{0, 1}, []int{2, 2}},
		"32":    {[]float64{0}, []int{32}},
	}
	for text, test := range tests {
		s, err := ParseWorkers(text)
		require.NoError(t, err, text)
		var got []int
		for _, share := range test.shares {
			got = append(got, s.At(share))
		}
		require.Equal(t, test.want, got, text)
	}
	require.Equal(t, 1, Schedule{}.At(0.5), "the zero schedule")
}
