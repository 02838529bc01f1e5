package stack

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Schedule says how many workers there are over a run: equal steps.
type Schedule struct{ steps []int }

// ParseWorkers reads "4" (always), "1..8" (a ramp over the run, up or down) or "1,4,2" (equal steps).
func ParseWorkers(text string) (Schedule, error) {
	counts := strings.Split(text, ",")
	first, last, isRamp := strings.Cut(text, "..")
	if isRamp {
		counts = []string{first, last}
	}
	var s Schedule
	for i, count := range counts {
		n, err := strconv.Atoi(strings.TrimSpace(count))
		if err != nil || n < 1 || n > maxWorkers {
			return Schedule{}, fmt.Errorf("workers %q: %q is not a number from 1 to %d; allowed are a number (4), a ramp (1..8) and steps (1,4,2)",
				text, count, maxWorkers)
		}
		if !isRamp || i == 0 {
			s.steps = append(s.steps, n)
			continue
		}
		for at := s.steps[0]; at != n; {
			at += cmp.Compare(n, at)
			s.steps = append(s.steps, at)
		}
	}
	return s, nil
}

// At is the number of workers when the share (0 to 1) of the run is over.
func (s Schedule) At(share float64) int {
	if len(s.steps) == 0 {
		return 1
	}
	i := int(share * float64(len(s.steps)))
	return s.steps[min(max(i, 0), len(s.steps)-1)]
}

// Max is the largest number of workers.
func (s Schedule) Max() int { return slices.Max(append([]int{1}, s.steps...)) }
