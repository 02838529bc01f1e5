package judge

import "github.com/forgerun/forgerun/internal/simulator/history"

// FactList is a Reader of facts that are in memory, with a single bucket for those
// about jobs.
type FactList []history.Fact

// Jobs calls fn with all facts about jobs.
func (l FactList) Jobs(bucket int, fn func(map[string][]history.Fact) error) error {
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

// Each calls fn with the facts about no job.
func (l FactList) Each(_ int, fn func(history.Fact) error) error {
	for _, f := range l {
		if f.Job != "" {
			continue
		}
		if err := fn(f); err != nil {
			return err
		}
	}
	return nil
}
