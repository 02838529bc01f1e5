package redisconn

import "net"

// Connections counts the connections of all clients.
func (r *Redis) Connections(up bool) (total, idle, timeouts int64, ok bool) { return r.connections(up) }

// Forget ends what would close a dialed connection, and reports whether it was still there.
func Forget(c net.Conn) bool { return c.(rawConn).forget() }
