package verdict

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
)

// evidence tells of an exchange in words.
func evidence(x *testbed.Exchange, found, expected string) testbed.Evidence {
	return testbed.Evidence{
		At: job.Time(x.Start), Request: request(x), Answer: answer(x), Fault: faultText(x.Fault), Found: found, Expected: expected,
	}
}

func request(x *testbed.Exchange) string {
	text := x.Method + " " + x.Path
	if !x.Delivery.IsZero() {
		text = fmt.Sprintf("POST (delivery %s, attempt %d, %s)", x.Delivery, x.Number, x.Event)
	}
	for _, h := range []struct{ name, value string }{
		{"X-Correlation-ID", x.Correlation}, {"Prefer", x.Prefer}, {"If-None-Match", x.IfNoneMatch}, {"Last-Event-ID", x.LastEventID},
	} {
		if h.value != "" {
			text += ", " + h.name + ": " + h.value
		}
	}
	if x.Key != "" {
		text += ", Idempotency-Key (hash " + x.Key[:min(len(x.Key), 8)] + ")"
	}
	return text
}

func answer(x *testbed.Exchange) string {
	var parts []string
	switch {
	case x.HungUp:
		return "none: the client hung up"
	case x.Fault != nil && x.Fault.Close != "":
		return "none: the connection was closed (" + string(x.Fault.Close) + ")"
	case x.Stream != nil:
		return fmt.Sprintf("a stream of %d events", x.Stream.Events)
	}
	parts = append(parts, strings.TrimSpace(fmt.Sprint(x.Status, " ", x.Code)))
	if x.RetryAfter != nil {
		parts = append(parts, fmt.Sprintf("Retry-After: %d", *x.RetryAfter))
	}
	if x.ETag != "" {
		parts = append(parts, "ETag: "+x.ETag)
	}
	return strings.Join(parts, ", ")
}

// faultText is the effect as a rule would have it.
func faultText(e *testbed.Effect) string {
	if e == nil {
		return ""
	}
	text, err := json.Marshal(e)
	if err != nil { // no effect that was read from JSON
		return err.Error()
	}
	return string(text)
}

// attempted tells of a delivery as of an exchange in which the service asks.
func attempted(a *testbed.Attempt) *testbed.Exchange {
	return &testbed.Exchange{
		Start: a.At, End: a.At.Add(a.Took), Method: "POST", Status: a.Status, Delivery: a.DeliveryID, Number: a.Number, Event: a.Event,
	}
}

// after says how long it took, such as "after 1.2 s".
func after(d time.Duration) string { return fmt.Sprintf("after %.1f s", d.Seconds()) }
