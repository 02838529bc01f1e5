package holders

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// listening is the state of a TCP socket that accepts connections.
const listening = 0x0A

// OfPort finds the process that listens on a TCP address. If `address` or the address of the socket is 0.0.0.0
// or ::, only the ports must be equal.
func OfPort(address string) (Holder, bool) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return Holder{}, false
	}
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return Holder{}, false
	}
	sockets := map[string]bool{}
	tables := []func() (procfs.NetTCP, error){proc.NetTCP, proc.NetTCP6} //nolint:staticcheck // reading /proc is simpler than netlink
	for _, read := range tables {
		table, err := read()
		if err != nil {
			continue // without IPv6, /proc/net/tcp6 is missing
		}
		for _, line := range table {
			local, _ := netip.AddrFromSlice(line.LocalAddr)
			local = local.Unmap()
			if line.St == listening && line.LocalPort == uint64(at.Port()) &&
				(local == at.Addr().Unmap() || local.IsUnspecified() || at.Addr().IsUnspecified()) {
				sockets[fmt.Sprintf("socket:[%d]", line.Inode)] = true
			}
		}
	}
	return withFile(proc, func(target string) bool { return sockets[target] })
}

func withFile(proc procfs.FS, is func(target string) bool) (Holder, bool) {
	all, err := proc.AllProcs()
	if err != nil {
		return Holder{}, false
	}
	for _, p := range all {
		targets, err := p.FileDescriptorTargets()
		if err != nil {
			continue // the process has ended or belongs to another user
		}
		for _, target := range targets {
			if is(target) {
				return holder(p), true
			}
		}
	}
	return Holder{}, false
}

// OfLock finds the process that holds the flock of a file.
func OfLock(path string) (Holder, bool) {
	info, err := os.Stat(path)
	if err != nil {
		return Holder{}, false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return Holder{}, false
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return Holder{}, false
	}
	device := stat.Dev
	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(device), unix.Minor(device), stat.Ino)
	for line := range strings.Lines(string(locks)) {
		var kind, mode, access, id string
		var number, pid int
		n, _ := fmt.Sscanf(line, "%d: %s %s %s %d %s", &number, &kind, &mode, &access, &pid, &id)
		if n == 6 && kind == "FLOCK" && id == file {
			if p, err := procfs.NewProc(pid); err == nil {
				return holder(p), true
			}
		}
	}
	return Holder{}, false
}

// longest is the maximum length of a shown command.
const longest = 60

// The holder's Command contains only the first argument, usually a subcommand, because other arguments may be secret.
func holder(p procfs.Proc) Holder {
	words, err := p.CmdLine()
	if err != nil || len(words) == 0 {
		return Holder{PID: p.PID}
	}
	command := words[0]
	if len(words) > 1 && !strings.HasPrefix(words[1], "-") {
		command += " " + words[1]
	}
	command = strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return '?'
		}
		return r
	}, command)
	return Holder{p.PID, command[:min(len(command), longest)]}
}
