package judge

import (
	"context"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// Facts holds facts that are in memory against all invariants, as Judge does with
// those of a history.
func Facts(ctx context.Context, facts []history.Fact, g Ground) (*Verdict, error) {
	return judge(ctx, factList(facts), g)
}

// factList is read as a history with a single bucket for facts about jobs.
type factList []history.Fact

func (l factList) Jobs(bucket int, fn func(map[string][]history.Fact) error) error {
	if bucket != 0 {
		return nil
	}
	jobs := map[string][]history.Fact{}
	for _, f := range l {
		if f.Job != "" {
			jobs[f.Job] = append(jobs[f.Job], f)
		}
	}
	return fn(jobs)
}

func (l factList) Each(_ int, fn func(history.Fact) error) error {
	for _, f := range l {
		if f.Job == "" {
			if err := fn(f); err != nil {
				return err
			}
		}
	}
	return nil
}
