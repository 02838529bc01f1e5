package stack

import (
	"context"
	"errors"
	"math"
	"net"
	"strings"
	"time"
)

// apiTries bounds how often another address is chosen for the API.
const apiTries = 3

// startAPIs starts the api processes. Without a proxy the one process has an
// address of its own for good; should somebody else have taken it meanwhile,
// another is chosen.
func (s *Stack) startAPIs(ctx context.Context) error {
	if s.o.APIs == 0 {
		return nil
	}
	faults := s.o.Faults && !s.o.foreign()
	if faults || s.o.APIs > 1 {
		var err error
		if s.balancer, err = newProxy("api", s.dialAPI); err != nil {
			return err
		}
		if faults {
			s.faulty = append(s.faulty, s.balancer)
		}
		return s.tryAPIs(ctx, s.balancer.address())
	}
	for try := 1; ; try++ {
		address, err := freeAddress()
		if err != nil {
			return err
		}
		if err = s.tryAPIs(ctx, address); !errors.Is(err, errNeverReady) || try == apiTries {
			return err
		}
	}
}

func (s *Stack) tryAPIs(ctx context.Context, address string) error {
	s.url = "http://" + address
	s.env.setPublicURL(s.o, s.url)
	apis := s.startMembers("api", s.o.APIs)
	s.mu.Lock()
	s.apis = apis
	s.mu.Unlock()
	err := awaitReady(ctx, apis)
	if err != nil {
		err = errors.Join(err, stopMembers(context.WithoutCancel(ctx), apis))
	}
	return err
}

// apiAddress is where the next api process listens.
func (s *Stack) apiAddress() (string, error) {
	if s.balancer != nil {
		return freeAddress()
	}
	return strings.TrimPrefix(s.url, "http://"), nil
}

// dialAPI connects to the api processes that live in turn, and waits a moment
// for one if there is none.
func (s *Stack) dialAPI(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	var dialer net.Dialer
	for {
		var living []*process
		s.mu.Lock()
		for _, m := range s.apis {
			if p := m.living(); p != nil {
				living = append(living, p)
			}
		}
		s.mu.Unlock()
		first := int(s.turn.Add(1) % math.MaxInt32)
		for i := range living {
			if conn, err := dialer.DialContext(ctx, "tcp4", living[(first+i)%len(living)].api); err == nil {
				return conn, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(askPeriod):
		}
	}
}
