package queue

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Valkey says which Redis it is compatible with, and its own version elsewhere.
func TestReadInfoOfValkey(t *testing.T) {
	t.Parallel()
	var s ServerFacts
	s.readInfo("# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.3\r\nrun_id:abc\r\n" +
		"# Persistence\r\nloading:1\r\naof_enabled:1\r\naof_last_write_status:err\r\n# Memory\r\nused_memory:7\r\n" +
		"maxmemory:9\r\n# Stats\r\nevicted_keys:3\r\n")
	require.Equal(t, ServerFacts{
		Product: "valkey", Version: "7.2.4", Release: "8.1.3", RunID: "abc", Loading: true, AppendOnly: "1", AppendStatus: "err",
		Used: 7, MaxMemory: 9, Evicted: 3,
	}, s)
}
