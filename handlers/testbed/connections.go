package testbed

import (
	"net"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/handlers/disturb"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

type nextFault struct {
	client job.ID
	effect *fault.Effect
}

// pendingFault returns the fault that an earlier request left for the next request on the connection. If the fault half-closed the
// connection, no request on it gets a response. Any other fault applies to the same client's next request that is not about the test
// bed.
func (v *visit) pendingFault(ofTestbed bool) *fault.Effect {
	c, ok := v.Context().Conn().(*conn.Conn)
	if !ok {
		return nil
	}
	left, ok := c.Next.(nextFault)
	if ok && left.effect.Close == fault.CloseHalf {
		return &fault.Effect{Close: fault.CloseBefore}
	}
	if !ok || ofTestbed || left.client != v.Caller.ClientID {
		return nil
	}
	c.Next = nil
	return left.effect
}

func (v *visit) deferFault() {
	c, ok := v.Context().Conn().(*conn.Conn)
	if next := v.fault.OnNext(); ok && next != nil {
		c.Next = nextFault{v.Caller.ClientID, next}
		c.EndsAfter.Store(next.Close == fault.CloseHalf)
	}
}

// Stream wraps the connection of an event stream. The wrapper applies the request's fault to the stream and records the stream.
func (s *API) Stream(r *httpkit.Request, c *conn.Conn) net.Conn {
	v := visitOf(r)
	if e := v.fault; e != nil {
		if v.fault = e.OnStream(); e.ContentType != "" {
			r.Set(fiber.HeaderContentType, e.ContentType)
		}
		v.setRetryAfter()
	}
	e, recorded := v.fault, recorded(r)
	if e != nil && !e.OfStreams() && !e.Rewrites() && e.SlowBytes == 0 {
		e = nil
	}
	if !recorded && e == nil {
		return c
	}
	return s.disturbed(v, c, e, recorded)
}

// disturbed wraps the connection of a stream. It records the start at once, because a killed process cannot record the end.
func (s *API) disturbed(v *visit, c net.Conn, e *fault.Effect, recorded bool) net.Conn {
	resumed := v.List("Last-Event-ID") != ""
	if !recorded {
		return disturb.NewConn(c, e, resumed, nil, nil)
	}
	scope, x := s.recordIn(v, v.Caller.ClientID), v.exchange()
	begun := *x
	begun.Stream = &verdict.Part{Open: true}
	s.keep(scope, &begun)
	return disturb.NewConn(c, e, resumed, x, func() {
		x.End = time.Now().UTC()
		s.keep(scope, x)
	})
}
