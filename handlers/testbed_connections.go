package handlers

import (
	"time"

	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/verdict/fault"
)

// nextFault is what a request has left for the next one of its client on the same connection.
type nextFault struct {
	client job.ID
	effect *fault.Effect
}

// leftFault returns what an earlier request on the connection has left for this one. A connection whose one side has ended is dead for
// each request; what else is left is for one of the same client that is not about the test bed itself.
func (r *call) leftFault(ofTestbed bool) *fault.Effect {
	c, ok := r.Context().Conn().(*conn.Conn)
	if !ok {
		return nil
	}
	left, ok := c.Next.(nextFault)
	if ok && left.effect.Close == fault.CloseHalf {
		return &fault.Effect{Close: fault.CloseBefore}
	}
	if !ok || ofTestbed || left.client != r.caller.ClientID {
		return nil
	}
	c.Next = nil
	return left.effect
}

// leaveFault leaves one for the next request on the connection.
func (r *call) leaveFault() {
	c, ok := r.Context().Conn().(*conn.Conn)
	if next := r.fault.OnNext(); ok && next != nil {
		c.Next = nextFault{r.caller.ClientID, next}
		c.EndsAfter.Store(next.Close == fault.CloseHalf)
	}
}

// refuseConnections closes the socket for as long as the fault says, and the connection of the request after its answer.
func (s *Server) refuseConnections(r *call) {
	r.Response().Header.SetConnectionClose()
	s.mu.Lock()
	l, ok := s.listener.(*conn.Listener)
	s.mu.Unlock()
	if ok {
		l.Refuse(time.Duration(r.fault.Refuse))
	}
}
