package job

// WeightUnit is what a unit of a job's weight stands for, in bytes.
const WeightUnit = 16 * kib

// Weight is what a job brings beyond an ordinary one, in units: what its params and its result take beyond the first unit each, and
// each event that it emits, with its deliveries, in each attempt.
func (j *Job) Weight() int {
	d := j.Definition
	weight := units(len(j.Params)) - 1 + units(d.PayloadSize) - 1
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

// smallAnswer is what a receiver may answer without having it counted, in bytes.
const smallAnswer = 1 * kib

// Weight is what the answer of a receiver brings, in units.
func (a *DeliveryAttempt) Weight() int {
	size := len(a.Body)
	for name, values := range a.Header {
		for _, v := range values {
			size += len(name) + len(v)
		}
	}
	if size <= smallAnswer {
		return 0
	}
	return units(size)
}

// units are those that so many bytes have begun, one at least.
func units(bytes int) int { return max(1, (bytes+WeightUnit-1)/WeightUnit) }
