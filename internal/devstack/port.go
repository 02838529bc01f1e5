package devstack

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are chosen below every system's range for outgoing connections (Linux starts it at 32768, others higher),
// from which any connection may take a port while the server is down.
const (
	firstPort = 20000
	lastPort  = 29999
)

const loopback = "127.0.0.1"

var errNoPort = errors.New("no free port between 20000 and 29999 on 127.0.0.1")

// reservedPort is a port that no other devstack chooses until release: a UDP socket on the same number holds it, and
// choosing a port takes both. Servers bind the TCP port only.
type reservedPort struct {
	number int
	holder net.PacketConn
}

func reservePort() (reservedPort, error) {
	for range 200 {
		number := firstPort + rand.IntN(lastPort-firstPort+1)
		holder, err := net.ListenPacket("udp4", address(number))
		if err != nil {
			continue
		}
		if portIsFree(number) {
			return reservedPort{number: number, holder: holder}, nil
		}
		_ = holder.Close()
	}
	return reservedPort{}, errNoPort
}

func (r reservedPort) release() {
	if r.holder != nil {
		_ = r.holder.Close()
	}
}

func portIsFree(number int) bool {
	l, err := net.Listen("tcp4", address(number))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// FreeAddress returns an address on 127.0.0.1 on which nobody listens now, and which no devstack has chosen.
func FreeAddress() (string, error) {
	port, err := reservePort()
	if err != nil {
		return "", err
	}
	port.release()
	return address(port.number), nil
}

func address(port int) string {
	return net.JoinHostPort(loopback, strconv.Itoa(port))
}
