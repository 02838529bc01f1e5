package queue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/tasks/redisconn"
)

// Errors of Inspect. Their texts complete the sentence "Redis at cache:6379 ...".
var (
	ErrBadURL     = errors.New("has an invalid address")
	ErrAway       = errors.New("does not accept connections")
	ErrSilent     = errors.New("does not answer in time")
	ErrClosed     = errors.New("closes connections without a response")
	ErrLogin      = errors.New("refuses the login")
	ErrNoDatabase = errors.New("has no such database")
	ErrTLS        = errors.New("and this program disagree on TLS")
	ErrUnread     = errors.New("refuses to be inspected")
)

// Inspection is the result of Inspect.
type Inspection struct {
	Place   string // the hosts of the address
	Servers []ServerFacts

	Paused []string          // queues paused by asynq's tools
	Wrong  map[string]string // unexpected types of asynq's keys, by key
}

// ServerFacts describes one Redis server. In a cluster, each master has its own ServerFacts. The value "" means unknown.
type ServerFacts struct {
	Address string
	Product string // redis or valkey
	Version string // version of Redis, or the compatible version for Valkey
	Release string // the product's own version
	RunID   string
	Role    string // master or slave

	AppendOnly      string // aof_enabled: 0 or 1
	AppendFsync     string // "" if CONFIG is forbidden
	Policy          string // maxmemory-policy
	MaxMemory, Used int64  // bytes; MaxMemory 0: no limit

	ClockOffset time.Duration // how far the server's clock is ahead of this machine's clock
	RoundTrip   time.Duration // the error of ClockOffset is at most half of RoundTrip
}

const inspectTimeout = 3 * time.Second

// Inspect reads the Redis at the address (see redisconn.Connect) over its own connections, with read-only commands. Its error wraps one of
// the Err variables of this file. The error never contains the password.
func Inspect(ctx context.Context, address string) (Inspection, error) {
	r, err := redisconn.Connect(address, redisconn.Options{Timeout: inspectTimeout})
	if err != nil {
		return Inspection{}, fmt.Errorf("%w: %w", ErrBadURL, err)
	}
	defer func() { _ = r.Close() }()
	i := Inspection{Place: strings.Join(r.Addrs(), ",")}
	if err := i.readServers(ctx, r.Client); err != nil {
		return i, obstacle(err)
	}
	i.Wrong, _ = wrongTypes(ctx, r.Client) // unknown if TYPE is not allowed
	if i.Paused, err = pausedQueues(ctx, r.Client); err != nil && !redis.HasErrorPrefix(err, "LOADING") {
		return i, obstacle(err)
	}
	return i, nil
}

func (i *Inspection) readServers(ctx context.Context, client redis.UniversalClient) error {
	switch c := client.(type) {
	case *redis.ClusterClient:
		var mu sync.Mutex
		err := c.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
			s, err := readServer(ctx, master)
			mu.Lock()
			defer mu.Unlock()
			i.Servers = append(i.Servers, s)
			return err
		})
		slices.SortFunc(i.Servers, func(a, b ServerFacts) int { return strings.Compare(a.Address, b.Address) })
		return err
	case *redis.Client:
		s, err := readServer(ctx, c)
		i.Servers = []ServerFacts{s}
		return err
	}
	return ErrUnread
}

func readServer(ctx context.Context, c *redis.Client) (ServerFacts, error) {
	s := ServerFacts{Address: c.Options().Addr}
	// Older servers accept only one section name, so ask for all sections.
	info, err := c.Info(ctx).Result()
	if err != nil {
		return s, err
	}
	s.readInfo(info)
	// Many providers forbid CONFIG. Most values are also in INFO.
	if config, err := c.ConfigGet(ctx, "appendfsync").Result(); err == nil {
		s.AppendFsync = config["appendfsync"]
	}
	return s, s.readClock(ctx, c)
}

func (s *ServerFacts) readInfo(info string) {
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(infoField(info, name), 10, 64) // absent: 0
		return n
	}
	s.Product, s.Version = "redis", infoField(info, "redis_version")
	s.Release = s.Version
	if own := infoField(info, "valkey_version"); own != "" {
		s.Product, s.Release = "valkey", own
	}
	s.RunID, s.Role = infoField(info, "run_id"), infoField(info, "role")
	s.AppendOnly, s.Policy = infoField(info, "aof_enabled"), infoField(info, "maxmemory_policy")
	s.MaxMemory, s.Used = number("maxmemory"), number("used_memory")
}

// clockTries is the number of times that Inspect reads the server's clock. Inspect uses the fastest response, because that response is
// the most accurate.
const clockTries = 3

// readClock sets ClockOffset and RoundTrip. It returns no error if the server refuses TIME, for instance while it is loading.
func (s *ServerFacts) readClock(ctx context.Context, c *redis.Client) error {
	for range clockTries {
		asked := time.Now()
		theirs, err := c.Time(ctx).Result()
		took := time.Since(asked)
		var refused redis.Error
		switch {
		case errors.As(err, &refused):
			return nil
		case err != nil:
			return err
		case s.RoundTrip == 0 || took < s.RoundTrip:
			s.RoundTrip, s.ClockOffset = took, theirs.Sub(asked.Add(took/2))
		}
	}
	return nil
}

// obstacle returns the Err variable that fits an error, sometimes with details.
func obstacle(err error) error {
	var refused redis.Error
	var network net.Error
	var lookup *net.DNSError
	switch {
	case errors.As(err, &refused):
		return fmt.Errorf("%w: %s", obstacleOfAnswer(err), refused.Error())
	case strings.Contains(err.Error(), "tls:"):
		return ErrTLS
	case errors.As(err, &lookup):
		return fmt.Errorf("%w: the name %s is unknown", ErrAway, lookup.Name)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return ErrSilent
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return ErrClosed
	}
	return ErrAway
}

func obstacleOfAnswer(err error) error {
	// HasErrorPrefix ignores a leading "ERR ".
	for _, prefix := range []string{"NOAUTH", "WRONGPASS", "invalid password", "AUTH", "Client sent AUTH"} {
		if redis.HasErrorPrefix(err, prefix) {
			return ErrLogin
		}
	}
	if redis.HasErrorPrefix(err, "DB index") {
		return ErrNoDatabase
	}
	return ErrUnread
}
