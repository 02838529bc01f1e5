package handlers

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// idleStreams opens n streams over real connections, each of which has sent an
// event, and gives what they cost in bytes each: memory that Go holds for heap
// and stacks, the test's own ends of the connections included.
func idleStreams(t testing.TB, n int) int {
	th := newStreamServer(t, func(c *Config, _ *Deps) { c.MaxStreamsPerClient = n })
	th.history.record(jobID, job.EventCreated)
	buf := make([]byte, 16<<10)
	open := func(count int) {
		for range count {
			c := th.dial()
			_, err := c.Write([]byte(th.request("GET", jobStream)))
			require.NoError(t, err)
			for got := ""; !strings.HasSuffix(got, "}\n\n"); {
				k, err := c.Read(buf)
				require.NoError(t, err)
				got += string(buf[:k])
			}
		}
	}
	open(10)
	before := memory()
	open(n - 10)
	th.history.watched(t, n)
	return int(memory()-before) / (n - 10)
}

func memory() uint64 {
	var m runtime.MemStats
	for range 4 { // stacks shrink by half at each collection
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

func TestIdleStreamsAreSmall(t *testing.T) {
	const bound = 24 << 10 // 5,000 of them in 120 MB; under the race detector too
	require.Less(t, idleStreams(t, 300), bound)
}

// BenchmarkIdleStreams reports the cost of an idle stream, and of 5,000 what
// the kernel counts for the whole process, clients included.
func BenchmarkIdleStreams(b *testing.B) {
	for b.Loop() {
		b.ReportMetric(float64(idleStreams(b, 5000))/1024, "KiB/stream")
		b.ReportMetric(float64(residentKB(b))/1024, "MiB-RSS")
	}
}

func residentKB(b *testing.B) int {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Skip("needs /proc")
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kb, err := strconv.Atoi(strings.Fields(rest)[0])
	require.NoError(b, err)
	return kb
}
