package stack

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are chosen below every system's range for outgoing connections (Linux starts it at 32768, others higher), from which
// any connection may take a port while the server is down.
const (
	firstPort = 20000
	lastPort  = 29999
)

const loopback = "127.0.0.1"

// reservePort chooses a port that nobody chooses again until its holder is closed: a UDP socket on the same number, which
// choosing takes too. Servers bind the TCP port only.
func reservePort() (port int, holder net.PacketConn, err error) {
	for range 200 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		holder, err := net.ListenPacket("udp4", address(port))
		if err != nil {
			continue
		}
		if l, err := net.Listen("tcp4", address(port)); err == nil {
			return port, holder, l.Close()
		}
		_ = holder.Close()
	}
	return 0, nil, errors.New("no free port between 20000 and 29999 on 127.0.0.1")
}

// FreeAddress returns an address on 127.0.0.1 on which nobody listens now, and which no server of this package has chosen.
func FreeAddress() (string, error) {
	port, holder, err := reservePort()
	if err != nil {
		return "", err
	}
	return address(port), holder.Close()
}

func address(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }
