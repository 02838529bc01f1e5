package main

import (
	"net"
	"strconv"
)

// reachable is how somebody on this machine reaches a listener: one on all addresses, as in a container, is reached
// on loopback.
func reachable(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return addr.String()
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(tcp.Port))
}
