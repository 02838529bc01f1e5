package bulk

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// parts is a store that notes whose parts are done, and in which every job that is looked at matches.
type parts struct {
	open  []*job.Bulk
	clock time.Time
	done  []string // the owner of each part
}

func (p *parts) OpenBulks(context.Context) ([]*job.Bulk, error) { return slices.Clone(p.open), nil }

func (p *parts) GatherBulk(_ context.Context, b *job.Bulk, look, _ int) (*job.Bulk, bool, error) {
	if b.Owner.Operator == "failing" {
		return b, false, errors.New("failing")
	}
	b.Total += look
	if b.Total >= 2*look {
		b.GatheredAt = &p.clock
	}
	p.done = append(p.done, b.Owner.Operator)
	return b, true, nil
}

func (p *parts) DoItems(ctx context.Context, id, _ job.ID, limit int, do func(context.Context, []job.BulkItem) ([]job.BulkItem, error),
) ([]job.BulkItem, error) {
	n := slices.IndexFunc(p.open, func(b *job.Bulk) bool { return b.ID == id })
	p.done = append(p.done, p.open[n].Owner.Operator)
	items := make([]job.BulkItem, limit)
	_, err := do(ctx, items)
	return items, err
}

func (p *parts) FinishBulk(context.Context, job.ID) (*job.Bulk, bool, error) { return nil, false, nil }

// allOfThem are jobs that are changed whenever they are asked to.
type allOfThem struct{}

func (allOfThem) DoItems(_ context.Context, _ *job.Bulk, items []job.BulkItem) ([]job.BulkItem, error) {
	return items, nil
}

// newRunner makes a runner of operations, which begin to gather.
func newRunner(owners ...string) (*Runner, *parts) {
	p := &parts{clock: time.Unix(1, 0)}
	for _, owner := range owners {
		p.open = append(p.open, &job.Bulk{ID: app.NewID(), Owner: job.BulkOwner{Operator: owner}, Action: job.BulkCancel, Rate: 1000})
	}
	clock := func() time.Time { return p.clock }
	return NewRunner(p, allOfThem{}, app.NewMetrics(prometheus.NewRegistry()), clock, slog.New(slog.DiscardHandler)), p
}

func always() bool { return true }

// However many operations others have, one more waits for one part of each other owner.
func TestOwnersAlternate(t *testing.T) {
	t.Parallel()
	r, p := newRunner("a", "a", "a", "a", "b", "failing", "b", "b", "c")
	require.Error(t, r.Round(t.Context(), always), "of the failing one, and the others go on")
	for range 3 {
		for turn := range 2 {
			require.ElementsMatch(t, []string{"a", "b", "c"}, p.done[3*turn:3*turn+3])
		}
		p.done, p.clock = nil, p.clock.Add(time.Minute)
		require.Error(t, r.Round(t.Context(), always))
		require.Len(t, p.done, maxRate/itemsAtOnce, "the rate of all together is used up")
	}
}
