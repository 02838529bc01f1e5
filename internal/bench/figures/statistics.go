package figures

import (
	"fmt"
	"slices"
)

// Column takes one number of each sample.
func Column[T any](samples []T, of func(T) float64) []float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = of(s)
	}
	return values
}

// Median is 0 for no values.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted, n := slices.Sorted(slices.Values(values)), len(values)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// ratios compares round by round.
func ratios(of, to []float64) []float64 {
	values := make([]float64, min(len(of), len(to)))
	for i := range values {
		values[i] = of[i] / to[i]
	}
	return values
}

// Compare gives the median of the rounds' ratios of a value, and both medians of the
// value in the format.
func Compare[T any](samples, to []T, value func(T) float64, format string) (ratio float64, note string) {
	return CompareValues(Column(samples, value), Column(to, value), format)
}

// CompareValues compares as Compare does.
func CompareValues(values, to []float64, format string) (ratio float64, note string) {
	return Median(ratios(values, to)), fmt.Sprintf(format+" to "+format, Median(values), Median(to))
}
