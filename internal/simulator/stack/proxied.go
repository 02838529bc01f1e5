package stack

import (
	"fmt"
	"net/url"
	"slices"
)

// proxies are those that faults may be done to.
func (s *Stack) proxies() []*proxy {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.faulty)
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

// proxiedServers gives the addresses that processes connect to.
func (s *Stack) proxiedServers() (database, redis string, err error) {
	if s.o.foreign() || !s.o.Faults {
		return s.databaseURL, s.redisURL, nil
	}
	if database, err = s.throughProxy("postgres", s.databaseURL); err != nil {
		return "", "", err
	}
	redis, err = s.throughProxy("redis", s.redisURL)
	return database, redis, err
}

// throughProxy puts a proxy in front of the server that a URL leads to.
func (s *Stack) throughProxy(name, address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	p, err := newProxy(name, dialer(u.Host))
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	s.faulty = append(s.faulty, p)
	s.mu.Unlock()
	u.Host = p.address()
	return u.String(), nil
}
