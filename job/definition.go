package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Type is the type of a requested job (API contract, section 8).
type Type string

// Job types.
const (
	Execute   Type = "EXECUTE"    // run as soon as possible
	Deferred  Type = "DEFERRED"   // run at execution_at
	EmitEvent Type = "EMIT_EVENT" // publish one event that the client chose
)

// Types lists all job types.
var Types = []Type{Execute, Deferred, EmitEvent}

// Valid reports whether t is one of the three types.
func (t Type) Valid() bool { return t == Execute || t == Deferred || t == EmitEvent }

// Emission is the event that an EMIT_EVENT job publishes when it runs.
type Emission struct {
	Name string          `json:"name"`
	Data json.RawMessage `json:"data,omitempty"`
	At   *time.Time      `json:"-"` // planned time by a test bed's clock
}

// Definition describes the work of a job. It is made when the job is accepted, and never changes.
type Definition struct {
	WorkKind        Kind      `json:"work_kind"`
	DurationMS      int64     `json:"duration_ms"`
	ShouldFail      bool      `json:"should_fail"`
	PayloadSize     int       `json:"payload_size"`       // bytes of the result body
	ExpectedOutcome string    `json:"expected_outcome"`   // final state of attempt 1
	Seed            int64     `json:"seed"`               // request timestamp, Unix microseconds
	Emit            *Emission `json:"emit,omitempty"`     // EMIT_EVENT only
	Behavior        *Behavior `json:"behavior,omitempty"` // CUSTOM only

	Retry *RetryPolicy `json:"retry,omitempty"` // nil means the service's settings
}

// Catalogue lists the job types and work kinds that this service offers, and their limits.
type Catalogue struct {
	Types           []Type
	Kinds           []Kind
	FailProbability float64       // chance that a failing kind is drawn, 0 to 1
	MaxRuntime      time.Duration // execution limit; RUNS_OVER_TIMEOUT lasts 1 s longer
	TestBed         bool          // CUSTOM is allowed
}

// Offered lists the kinds that requests may name.
func (c Catalogue) Offered() []Kind {
	if !c.TestBed {
		return c.Kinds
	}
	return append(append([]Kind(nil), c.Kinds...), Custom)
}

// Define returns the definition of a job that was requested at the given time. The time is the seed, so the same time and catalogue
// produce the same definition (API contract, section 6). If kind is "", Define draws a kind, but never PAYLOAD_INVALID.
func (c Catalogue) Define(t Type, kind Kind, requestedAt time.Time, emit *Emission) (Definition, error) {
	seed := requestedAt.UnixMicro()
	if kind == "" {
		kind = c.draw(t, seed)
	}
	s, ok := SpecOf(kind, c.MaxRuntime)
	if !ok {
		return Definition{}, fmt.Errorf("work kind %q does not exist", kind)
	}
	d := Definition{
		WorkKind: kind, DurationMS: s.DurationMS, ShouldFail: s.ShouldFail,
		PayloadSize: s.PayloadSize, ExpectedOutcome: s.Expected, Seed: seed,
	}
	d.setEmission(t, emit)
	return d, nil
}

// DefineCustom returns the definition of a CUSTOM job with behavior b. The time of the request is the seed, unless b has one.
func DefineCustom(t Type, b *Behavior, requestedAt time.Time, emit *Emission) Definition {
	if b == nil {
		b = &Behavior{}
	}
	d := Definition{
		WorkKind: Custom, DurationMS: b.Duration.Milliseconds(), PayloadSize: b.ResultSize(), ExpectedOutcome: string(Succeeded),
		Seed: requestedAt.UnixMicro(), Behavior: b,
	}
	if b.Seed != nil {
		d.Seed = *b.Seed
	}
	if b.FailureOf(1) != nil {
		d.ShouldFail, d.ExpectedOutcome = true, string(Failed)
	}
	d.setEmission(t, emit)
	return d
}

func (d *Definition) setEmission(t Type, emit *Emission) {
	if t != EmitEvent {
		return
	}
	d.Emit = emit
	if emit == nil {
		d.Emit = &Emission{Name: EventEmitted}
	}
}

// draw chooses a work kind. With probability FailProbability it chooses a failing kind. All failing kinds are equally likely, and all
// other kinds are equally likely. An EMIT_EVENT job gets a kind that succeeds quickly.
func (c Catalogue) draw(t Type, seed int64) Kind {
	if t == EmitEvent && slices.Contains(c.Kinds, SuccessFast) {
		return SuccessFast
	}
	r := rand.New(rand.NewPCG(uint64(seed), 0))
	wantFail := r.Float64() < c.FailProbability
	var matching, others []Kind
	for _, k := range c.Kinds {
		switch s := specs[k]; {
		case k == PayloadInvalid:
		case s.ShouldFail == wantFail:
			matching = append(matching, k)
		default:
			others = append(others, k)
		}
	}
	if len(matching) == 0 {
		matching = others
	}
	if len(matching) == 0 {
		return ""
	}
	return matching[r.IntN(len(matching))]
}

// ErrExhausted means that this machine lacks disk space, memory or file handles for the work.
var ErrExhausted = errors.New("the machine has too little disk space, memory or file handles for the work")

// ErrBadDefinition is wrapped by every error of Definition.Validate.
var ErrBadDefinition = errors.New("job definition is missing or invalid")

// Validate checks a stored definition. A damaged definition fails the job (API contract, section 14).
func (d Definition) Validate() error {
	custom, least := d.WorkKind == Custom, 1*kib
	if custom {
		least = 0
	}
	switch {
	case custom && !d.Behavior.valid():
		return fmt.Errorf("%w: it has no behavior to run", ErrBadDefinition)
	case !custom && !d.WorkKind.Valid() || d.WorkKind == PayloadInvalid:
		return fmt.Errorf("%w: work_kind %q", ErrBadDefinition, d.WorkKind)
	case d.DurationMS < 0 || d.DurationMS > int64(25*time.Hour/time.Millisecond):
		return fmt.Errorf("%w: duration_ms %d", ErrBadDefinition, d.DurationMS)
	case d.PayloadSize < least || d.PayloadSize > MaxResultBytes:
		return fmt.Errorf("%w: payload_size %d", ErrBadDefinition, d.PayloadSize)
	}
	return nil
}

// WeightUnit is the number of bytes in a unit of weight. Weight counts toward a client's daily storage limit.
const WeightUnit = 16 * kib

// Weight returns how much more storage the job needs than an ordinary job, in units. The first unit of params and the first unit of the
// result are free. The planned events of a CUSTOM job are counted for each allowed attempt. Two receivers together add one unit, because
// they get deliveries of the job's state changes.
func (j *Job) Weight(receivers int) int {
	d := j.Definition
	weight := units(len(j.Params)) - 1 + units(d.PayloadSize) - 1 + receivers/2
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

// A receiver's response of at most this size, in bytes, has weight 0.
const smallResponse = 1 * kib

// Weight returns the weight of the receiver's response, in units.
func (a *DeliveryAttempt) Weight() int {
	size := len(a.Body)
	for name, values := range a.Header {
		for _, v := range values {
			size += len(name) + len(v)
		}
	}
	if size <= smallResponse {
		return 0
	}
	return units(size)
}

func units(bytes int) int { return max(1, (bytes+WeightUnit-1)/WeightUnit) }
