package stack

import (
	"fmt"
	"net/url"
)

// proxies are those that faults may be done to.
func (s *Stack) proxies() []*proxy {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*proxy(nil), s.faulty...)
}

// ReceiverURL gives the address under which the service reaches a receiver of
// webhooks that listens at upstream (http://127.0.0.1:9000): one that leads
// through a proxy of its own, or without faults upstream itself.
func (s *Stack) ReceiverURL(upstream string) (string, error) {
	if !s.o.Faults {
		return upstream, nil
	}
	u, err := url.Parse(upstream)
	if err != nil || u.Scheme != "http" || u.Port() == "" {
		return "", fmt.Errorf("the receiver's address is %q: needed is one like http://127.0.0.1:9000", upstream)
	}
	_, done, err := s.begin(s.ctx)
	if err != nil {
		return "", err
	}
	defer done()
	return s.throughProxy("receiver", upstream)
}
