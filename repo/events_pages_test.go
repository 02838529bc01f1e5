package repo_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

// However long a client's history is, a page costs what it shows.
func TestFeedReadsNoFurtherThanItsLimit(t *testing.T) {
	f := setup(t)
	for table, n := range map[string]int{"events": 20_000, "client_events": 5000} {
		f.insert(table, n, columns{"client_id": quoted(f.client), "tx": "(i % 1000 + 1)::text::xid8"})
	}
	f.exec(`ANALYZE`)
	const limit = 10
	conn := connection(t, f.store.Pool())
	for _, after := range []string{"0", "500", "1000"} {
		args := fmt.Sprintf(`'%s', '%s', '%s', 0, %d, 262144`, f.client, after, nobody, limit)
		for _, mode := range []string{custom, generic} {
			p := parsePlan(t, explainAs(t, conn, "ANALYZE, FORMAT JSON", mode, repo.Statements["clientEvents"], args)[0])
			p.walk(func(node plan) { require.LessOrEqual(t, node.Rows, 2.0*limit, "%s after %s: %+v", mode, after, p) })
		}
	}
	p := parsePlan(t, explainAs(t, conn, "ANALYZE, FORMAT JSON", generic, repo.Statements["latestPositions"], `'{`+f.client.String()+`}'`)[0])
	p.walk(func(node plan) { require.LessOrEqual(t, node.Rows, 2.0, "%+v", p) })
}

// large records an event whose data has the given size in bytes, and packs well.
func (f *fixture) large(id job.ID, seq, size int) {
	f.exec(`INSERT INTO events (job_id, client_id, seq, event_id, event_name, attempt, occurred_at, data)
		VALUES ($1, $2, $3, gen_random_uuid(), 'event.emitted', 1, now(), jsonb_build_object('d', repeat('x', $4)))`,
		id.String(), f.client.String(), seq, size-len(`{"d": ""}`))
	f.exec(`UPDATE jobs SET event_seq = $2 WHERE job_id = $1`, id.String(), seq)
}

// dataBytes counts the data of a page.
func dataBytes(events []job.Occurrence) (n int) {
	for _, e := range events {
		n += len(e.Data)
	}
	return n
}

// However large events are, a page is not: it ends with the event that makes 256 KiB full, and says that there is more.
func TestPagesAreBoundedInBytes(t *testing.T) {
	const kib = 1 << 10
	f := setup(t)
	id := f.submit() // two events
	for i, size := range []int{256 * kib, 256 * kib, 300 * kib, 100 * kib, 100 * kib, 100 * kib, 10, 10} {
		f.large(id, 3+i, size)
	}
	all := f.places()
	require.Len(t, all, 10)
	require.Len(t, (&follower{f: f}).readAll(100), 10)

	var pages []int
	for at := (job.Position{}); ; {
		feed := f.feed(at, 100)
		log := f.events(id, at.Seq, 100)
		require.Equal(t, seqs(log.Events), seqs(feed.Events), "both kinds of pages end alike")
		require.LessOrEqual(t, dataBytes(feed.Events), 512*kib)
		pages = append(pages, len(feed.Events))
		at = feed.Events[len(feed.Events)-1].Position
		require.Equal(t, at.Seq < 10, feed.More)
		require.Equal(t, 10, log.Last)
		if !feed.More {
			break
		}
	}
	require.Equal(t, []int{3, 1, 1, 3, 2}, pages)
	feed := f.feed(all[7], 1)
	require.Len(t, feed.Events, 1)
	require.True(t, feed.More, "the limit ends a page too")
	require.False(t, f.feed(all[7], 2).More)
}

func seqs(events []job.Occurrence) []int {
	return each(events, func(e job.Occurrence) int { return e.Seq })
}
