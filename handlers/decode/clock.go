package decode

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/forgerun/forgerun/job/testbed"
)

// ClockMove reads the body of a request to move the clock: exactly one of its members.
func ClockMove(body []byte) (m testbed.ClockMove, err error) {
	d := newDecoder(body)
	d.document([]member{
		{name: "advance", read: func() { m.Advance = d.advance() }},
		{name: "set", read: func() { m.Set, _ = d.time() }},
		{name: "freeze", read: func() {
			if d.json.PeekKind() != 'n' {
				m.Freeze = new(bool)
			}
			if frozen := d.boolean(); frozen {
				*m.Freeze = true
			}
		}},
		{name: "rate", read: func() { m.Rate = d.rate() }},
	})
	given := 0
	for _, is := range []bool{m.Advance != nil, m.Set != nil, m.Freeze != nil, m.Rate != nil} {
		if is {
			given++
		}
	}
	if d.err == nil && given != 1 && len(d.violations()) == 0 {
		d.wrong("", fmt.Sprintf("Exactly one of advance, set, freeze and rate is needed; there are %d.", given))
	}
	return m, d.result()
}

// longestAdvance is as far as a time.Duration goes, in hours.
const longestAdvance = 2_562_047 * time.Hour

// advance reads by how much the clock is to be moved.
func (d *decoder) advance() *time.Duration {
	by, ok := d.span(0, longestAdvance, `This must be a duration of not less than "0s", such as "90s", "25h" or "720h30m".`)
	if !ok {
		return nil
	}
	return &by
}

// rate reads how fast the clock is to run.
func (d *decoder) rate() *float64 {
	if !d.begins('0', "a number") {
		return nil
	}
	rate, err := strconv.ParseFloat(string(d.value()), 64)
	if err != nil || math.IsNaN(rate) || rate < testbed.MinRate || rate > testbed.MaxRate {
		d.invalid(fmt.Sprintf("This must be a number from %v to %v.", testbed.MinRate, testbed.MaxRate))
		return nil
	}
	return &rate
}
