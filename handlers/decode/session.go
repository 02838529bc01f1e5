package decode

import (
	"slices"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// Session reads the body of a request for a session, which may be missing. Rules are the ids that it may name.
func Session(body []byte, rules []string) (verdict.Session, error) {
	n := verdict.Session{Seed: 1}
	if len(body) == 0 {
		return n, nil
	}
	d := newDecoder(body)
	d.document([]member{
		{name: "profile", read: func() { n.Profile, _ = choose(d, "profile", fault.Profiles) }},
		{name: "seed", read: func() { n.Seed = int64(d.integer(0, 1<<53, 1)) }},
		{name: "rules", read: func() {
			if d.begins('[', "an array of strings") {
				d.array(func(int) {
					if id, ok := choose(d, "rule", rules); ok && id != "" && !slices.Contains(n.Rules, id) {
						n.Rules = append(n.Rules, id)
					}
				})
			}
		}},
	})
	return n, d.result()
}
