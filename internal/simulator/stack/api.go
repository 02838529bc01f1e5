package stack

import (
	"cmp"
	"context"
	"errors"
	"net"
	"strings"

	"github.com/forgerun/forgerun/internal/devstack"
	"github.com/forgerun/forgerun/internal/process"
)

// apiTries bounds how often another address is chosen for the API.
const apiTries = 3

// startAPIs starts the api processes. Without a proxy the one process keeps its address; if somebody has taken it,
// another is chosen.
func (s *Stack) startAPIs(ctx context.Context) error {
	if s.o.APIs == 0 {
		return nil
	}
	faults := s.o.Faults && !s.o.foreign()
	if faults || s.o.APIs > 1 || s.o.Listen != "" {
		var err error
		if s.balancer, err = newProxyAt("api", cmp.Or(s.o.Listen, anyAddress), s.dialAPI); err != nil {
			return err
		}
		if faults {
			s.faulty = append(s.faulty, s.balancer)
		}
		return s.tryAPIs(ctx, s.balancer.address())
	}
	for try := 1; ; try++ {
		address, err := devstack.FreeAddress()
		if err != nil {
			return err
		}
		if err = s.tryAPIs(ctx, address); !errors.Is(err, process.ErrExited) || try == apiTries {
			return err
		}
	}
}

func (s *Stack) tryAPIs(ctx context.Context, address string) error {
	s.url = "http://" + address
	s.env.setPublicURL(s.o, s.url)
	apis, _ := s.resize(&s.apis, "api", s.o.APIs)
	err := awaitReady(ctx, apis)
	if err != nil {
		_, apis = s.resize(&s.apis, "api", 0)
		err = errors.Join(err, stopMembers(context.WithoutCancel(ctx), apis))
	}
	return err
}

// apiAddress is where the next api process listens.
func (s *Stack) apiAddress() (string, error) {
	if s.balancer != nil {
		return devstack.FreeAddress()
	}
	return strings.TrimPrefix(s.url, "http://"), nil
}

// dialAPI connects to the living api processes in turn, and waits a moment for one if there is none.
func (s *Stack) dialAPI(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	var dialer net.Dialer
	for {
		s.mu.Lock()
		apis := s.apis
		s.mu.Unlock()
		first := s.turn.Add(1)
		for i := range apis {
			if r := apis[(first+uint64(i))%uint64(len(apis))].living(); r != nil {
				if conn, err := dialer.DialContext(ctx, "tcp4", r.api); err == nil {
					return conn, nil
				}
			}
		}
		if !process.Sleep(ctx, retryPeriod) {
			return nil, context.Cause(ctx)
		}
	}
}
