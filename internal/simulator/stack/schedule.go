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

// ParseWorkers reads "4" (always), "1..8" (a ramp over the run, up or down) or
// "1,4,2" (equal steps).
func ParseWorkers(text string) (Schedule, error) {
	steps, err := parseSteps(text)
	if err != nil {
		return Schedule{}, fmt.Errorf("workers %q: %w; allowed are a number (4), a ramp (1..8) and steps (1,4,2)", text, err)
	}
	return Schedule{steps}, nil
}

func parseSteps(text string) (steps []int, err error) {
	first, last, isRamp := strings.Cut(text, "..")
	if !isRamp {
		for count := range strings.SplitSeq(text, ",") {
			n, err := parseCount(count)
			if err != nil {
				return nil, err
			}
			steps = append(steps, n)
		}
		return steps, nil
	}
	from, err := parseCount(first)
	if err != nil {
		return nil, err
	}
	to, err := parseCount(last)
	if err != nil {
		return nil, err
	}
	for n := from; n != to; n += cmp.Compare(to, from) {
		steps = append(steps, n)
	}
	return append(steps, to), nil
}

func parseCount(text string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < 1 || n > maxWorkers {
		return 0, fmt.Errorf("%q is not a number from 1 to %d", text, maxWorkers)
	}
	return n, nil
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
