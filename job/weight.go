package job

// WeightUnit is what a unit of a job's weight stands for, in bytes.
const WeightUnit = 16 * kib

// Weight is what a job brings beyond an ordinary one, in units: what its result takes beyond the first unit, and each event that it
// emits, with its deliveries, in each attempt.
func (j *Job) Weight() int {
	d := j.Definition
	weight := units(d.PayloadSize) - 1
	if d.Behavior != nil {
		for _, e := range d.Behavior.Emit {
			weight += j.MaxAttempts * units(len(e.Data))
		}
	}
	if d.Emit != nil {
		weight += units(len(d.Emit.Data))
	}
	return weight
}

// units are those that so many bytes have begun, one at least.
func units(bytes int) int { return max(1, (bytes+WeightUnit-1)/WeightUnit) }
