package verdict

import (
	"cmp"
	"slices"

	"github.com/forgerun/forgerun/verdict/fault"
)

// faults counts the session's faults by kind and by the purpose of the disturbed requests. If a kind of fault in the profile did not
// happen, its count is 0.
func faults(r *record) []fault.Count {
	counts := []fault.Count{}
	requests, byKind := map[fault.Use]int{fault.Deliveries: len(r.Attempts)}, map[string]int{}
	for i := range r.exchanges {
		x := &r.exchanges[i]
		of := faultUses[x.Role]
		if of != fault.Deliveries {
			requests[of]++
			requests[fault.AnyRequest]++
		}
		if x.Fault == nil {
			continue
		}
		for _, kind := range x.Fault.Kinds() {
			byKind[kind]++
			at := slices.IndexFunc(counts, func(c fault.Count) bool { return c.Fault == kind && c.Of == of })
			if at < 0 {
				at, counts = len(counts), append(counts, fault.Count{Fault: kind, Of: of})
			}
			counts[at].Times++
		}
	}
	for _, sure := range r.Session.Profile.About(r.API, r.Session.Seed) {
		met := slices.ContainsFunc(counts, func(c fault.Count) bool { return c.Fault == sure.Fault && c.Of == sure.Of })
		if !met && (sure.Of != fault.AnyRequest || byKind[sure.Fault] == 0) {
			counts = append(counts, sure)
		}
	}
	for i := range counts {
		counts[i].Requests = requests[counts[i].Of]
	}
	slices.SortStableFunc(counts, func(x, y fault.Count) int {
		return cmp.Or(cmp.Compare(slices.Index(fault.Uses, x.Of), slices.Index(fault.Uses, y.Of)), cmp.Compare(x.Fault, y.Fault))
	})
	return counts
}

// Unmet returns how many kinds of faults did not happen although the profile has them.
func (v *Verdict) Unmet() (n int) {
	for _, c := range v.Faults {
		if c.Times == 0 {
			n++
		}
	}
	return n
}
