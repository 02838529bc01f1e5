package verdict

import (
	"cmp"
	"slices"

	"github.com/forgerun/forgerun/job/testbed"
)

// faults counts those that happened, by kind and use, and names those that the session's profile is about and that did not.
func faults(r *Record) []testbed.FaultCount {
	counts := []testbed.FaultCount{}
	requests, anyhow := map[testbed.Use]int{testbed.Deliveries: len(r.Attempts)}, map[string]int{}
	for i := range r.Exchanges {
		x := &r.Exchanges[i]
		of := testbed.UseOf(x.Operation)
		if of != testbed.Deliveries {
			requests[of]++
			requests[testbed.AnyRequest]++
		}
		if x.Fault == nil {
			continue
		}
		for _, kind := range x.Fault.Kinds() {
			anyhow[kind]++
			at := slices.IndexFunc(counts, func(c testbed.FaultCount) bool { return c.Fault == kind && c.Of == of })
			if at < 0 {
				at, counts = len(counts), append(counts, testbed.FaultCount{Fault: kind, Of: of})
			}
			counts[at].Times++
		}
	}
	for _, sure := range r.Session.Profile.About() {
		met := slices.ContainsFunc(counts, func(c testbed.FaultCount) bool { return c.Fault == sure.Fault && c.Of == sure.Of })
		if !met && (sure.Of != testbed.AnyRequest || anyhow[sure.Fault] == 0) {
			counts = append(counts, sure)
		}
	}
	for i := range counts {
		counts[i].Requests = requests[counts[i].Of]
	}
	slices.SortStableFunc(counts, func(x, y testbed.FaultCount) int {
		return cmp.Or(cmp.Compare(slices.Index(testbed.Uses, x.Of), slices.Index(testbed.Uses, y.Of)), cmp.Compare(x.Fault, y.Fault))
	})
	return counts
}

// unmet reports whether a fault that the profile is about did not come to be.
func unmet(counts []testbed.FaultCount) bool {
	return slices.ContainsFunc(counts, func(c testbed.FaultCount) bool { return c.Times == 0 })
}
