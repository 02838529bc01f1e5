package stack

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Schedule says how many workers there are over a run: equal steps.
type Schedule struct{ steps []int }

// ParseWorkers reads "4" (always), "1..8" (a ramp over the run, up or down) or
// "1,4,2" (equal steps).
func ParseWorkers(text string) (Schedule, error) {
	first, last, isRamp := strings.Cut(text, "..")
	if isRamp {
		return parseRamp(text, first, last)
	}
	var s Schedule
	for part := range strings.SplitSeq(text, ",") {
		n, err := parseCount(part)
		if err != nil {
			return Schedule{}, badWorkers(text, err)
		}
		s.steps = append(s.steps, n)
	}
	return s, nil
}

func parseRamp(text, first, last string) (Schedule, error) {
	from, err := parseCount(first)
	if err != nil {
		return Schedule{}, badWorkers(text, err)
	}
	to, err := parseCount(last)
	if err != nil {
		return Schedule{}, badWorkers(text, err)
	}
	var s Schedule
	for n := min(from, to); n <= max(from, to); n++ {
		s.steps = append(s.steps, n)
	}
	if from > to {
		slices.Reverse(s.steps)
	}
	return s, nil
}

func parseCount(text string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < 1 || n > maxWorkers {
		return 0, fmt.Errorf("%q is not a number from 1 to %d", text, maxWorkers)
	}
	return n, nil
}

func badWorkers(text string, err error) error {
	return fmt.Errorf("workers %q: %w; allowed are a number (4), a ramp (1..8) and steps (1,4,2)", text, err)
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
