package judge

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

func TestSoundHistoryPasses(t *testing.T) {
	t.Parallel()
	w := soundWorld()
	v, err := Judge(t.Context(), w.write(t), w.run)
	require.NoError(t, err)
	require.Empty(t, v.Violations)
	require.Zero(t, v.ViolationCount)
	require.EqualValues(t, 18, v.Jobs)
	require.EqualValues(t, 19, v.Tickets)
	require.EqualValues(t, len(w.facts), v.Facts)
	for _, invariant := range Invariants {
		require.Positive(t, v.Of(invariant.Key).Checked, invariant.Key)
		require.NotEmpty(t, invariant.sources, invariant.Key)
		require.Empty(t, v.Of(invariant.Key).Skipped)
	}
}

func (w *world) without(s Source, facts ...history.Kind) *world {
	w.run.Collected.Missing[s] = "it broke off"
	w.dropAll(of(facts...))
	return w
}

var rowFacts = []history.Kind{
	history.StoredJob, history.StoredEvent, history.StoredReport, history.StoredDeliver,
}

func TestMissingSourcesAreReported(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		miss    func(w *world)
		skipped map[string]string // part of the text why the check was skipped, by invariant
	}{
		"no rows": {func(w *world) {
			w.without(Rows, rowFacts...)
		}, map[string]string{fenced: "not checked: rows: it broke off", accepted: "in part", tasked: "not checked"}},
		"half the events": {func(w *world) { w.without(Rows); w.halfOf(history.StoredEvent) }, map[string]string{logged: "rows: it broke off"}},
		"no lists": {func(w *world) {
			w.without(Lists, history.ListedJob)
		}, map[string]string{accepted: "in part; missing: job lists: it broke off"}},
		"no reports": {func(w *world) {
			w.without(Reports, history.APIReport, history.APIDelivery)
		}, map[string]string{timed: "in part"}},
		"no queue": {func(w *world) {
			w.without(Queue, history.QueuedTask)
		}, map[string]string{tasked: "not checked: queue: it broke off"}},
		"no metrics": {func(w *world) {
			w.without(Metrics)
			w.run.Collected.Measured = nil
		}, map[string]string{measured: "not checked: metrics: it broke off"}},
		"incomplete counters": {func(w *world) { w.run.Counters = false }, map[string]string{measured: "in part; missing: counters"}},
		"no streams": {func(w *world) {
			w.run.Streamed, w.run.Whole = false, false
			w.dropAll(of(streams))
		}, map[string]string{streamed: "no job of this run was suitable"}},
		"only the client": {func(w *world) {
			w.run.Collected = Collected{}
			w.dropAll(of(listed, apiReport, apiDelivery, history.QueuedTask))
			w.dropAll(of(rowFacts...))
		}, map[string]string{accepted: "not checked: job lists: not read in this run", fenced: "not checked", delivered: "rows"}},
		"no subscriber": {func(w *world) {
			w.run.Webhooks = nil
			w.dropAll(hasDelivery)
			for i := range w.facts {
				if s := w.facts[i].Submission; s != nil {
					s.Callback = ""
				}
			}
		}, map[string]string{delivered: "no job of this run was suitable", received: "no job of this run was suitable"}},
		"unread counters": {func(w *world) {
			w.run.Collected.Measured = w.run.Collected.Measured[1:]
		}, map[string]string{measured: "in part; missing: counters"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := soundWorld()
			test.miss(w)
			v := w.judge(t)
			require.Empty(t, v.Violations)
			for invariant, why := range test.skipped {
				require.Contains(t, v.Of(invariant).Skipped, why)
			}
			for _, invariant := range Invariants {
				require.True(t, v.Of(invariant.Key).Checked > 0 || v.Of(invariant.Key).Skipped != "", "%s passed silently", invariant.Key)
			}
		})
	}
}

func (w *world) halfOf(k history.Kind) {
	n := 0
	w.dropAll(func(f *history.Fact) bool {
		if f.Kind == k {
			n++
		}
		return f.Kind == k && n > 40
	})
}

func TestReportsAreJudgedWithoutRows(t *testing.T) {
	t.Parallel()
	for want, corrupt := range map[string]func(w *world){
		"accepted: the job was accepted":            func(w *world) { w.drop(w.find(listed, plainJob)) },
		"log: event 3 (job.assigned) in the report": func(w *world) { w.shown(plainJob).Events[2].Prev = created },
		"final: the report of attempt 1 says":       func(w *world) { w.shown(deferredJob).StartedAt = w.start },
		"duration: attempt 1 took 1.03s":            func(w *world) { w.shown(plainJob).DurationMS = 1 },
		"catalogue: attempt 1 of work kind FAIL_":   failedWith(othersJob, codeWorkerLost),
		"delivery: event 1 (job.created) has no":    func(w *world) { w.drop(w.find(apiDelivery, plainJob)) },
		"stream: the stream ends before event 5":    func(w *world) { w.drop(w.find(streams, plainJob, named("job.succeeded"))) },
		"answers: the cancel request returned":      acted(polledJob, func(a *history.Answer) { a.State = canceled }),
		"early: event 2 (job.queued) came":          func(w *world) { w.sub(deferredJob).ExecutionAt = w.start.Add(time.Hour) },
		"the stream does not show that attempt 1": func(w *world) {
			w.drop(w.find(apiReport, plainJob))
			w.drop(w.find(streams, plainJob, named("job.succeeded")))
		},
	} {
		w := soundWorld().without(Rows, rowFacts...)
		corrupt(w)
		require.Contains(t, fmt.Sprint(w.judge(t).Violations), want)
	}
}

func withoutDelivery(w *world) { w.dropAll(about(plainJob), hasDelivery, named("job.succeeded")) }

func TestFaultsExcuse(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		corrupt func(w *world)
		excuse  func(run *RunContext)
	}{
		"a killed worker": {failedWith(othersJob, codeWorkerLost), func(run *RunContext) { run.Killed = true }},
		"a webhook changed during the run": {withoutDelivery, func(run *RunContext) {
			run.Collected.Webhooks = map[string]time.Time{"hook-0": newWorld().start}
		}},
		"an interrupted stream": {func(w *world) { w.drop(w.find(streams, plainJob)) }, func(run *RunContext) { run.Whole = false }},
	}
	for name, test := range tests {
		w := soundWorld()
		test.corrupt(w)
		require.Positive(t, w.judge(t).ViolationCount, name)
		test.excuse(&w.run)
		require.Empty(t, w.judge(t).Violations, name)
	}
}

func TestVerdictIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld()
	const jobs = 1100
	for range jobs {
		w.job(0, "SUCCESS_FAST").success().close()
	}
	w.dropAll(func(f *history.Fact) bool { // drops all submissions, and the last event of 30 jobs from the stream
		return f.Kind == submitted || f.Kind == streams && f.Job > jobName(jobs-30) && named("job.succeeded")(f)
	})
	v := w.judge(t)
	require.EqualValues(t, jobs+30, v.ViolationCount)
	require.EqualValues(t, jobs, v.Of(accepted).Violations)
	require.EqualValues(t, 30, v.Of(streamed).Violations)
	listed, histories := map[string]int{}, map[string]int{}
	for _, violation := range v.Violations {
		listed[violation.Invariant]++
		if violation.History != nil {
			histories[violation.Invariant]++
		}
	}
	require.Equal(t, map[string]int{accepted: maxViolations, streamed: 30}, listed, "frequent violations do not hide others")
	require.Equal(t, map[string]int{accepted: maxHistories, streamed: maxHistories}, histories)
}

func TestViolationIsReadable(t *testing.T) {
	t.Parallel()
	w := soundWorld()
	w.find(history.Submitted, calledJob).Submission.Callback = "http://user:hush@receiver/callback?token=hush"
	w.find(history.Submitted, calledJob).Submission.Key = "hush"
	w.find(history.Submitted, calledJob).Submission.Tries[0].Error = "frk_abc_hush refused \x1b[2J Bearer hush whsec_hush"
	w.row(calledJob).Keys = 0
	w.find(listed, calledJob).Shown.CorrelationID = "frk_hush \x1b[2J"
	v := w.judge(t)
	require.NotEmpty(t, v.Violations)
	text := fmt.Sprint(v.Violations)
	require.NotContains(t, text, "hush")
	require.NotContains(t, text, "\x1b")
	require.Contains(t, text, "would create a second job, job "+jobName(calledJob)+fmt.Sprintf(", submission %d\n", calledJob))
	last := ""
	for _, part := range []string{"job.created", "job.queued", "job.assigned", "job.running", "job.succeeded"} {
		at := strings.Index(text, part)
		require.Greater(t, at, strings.Index(text, last), part)
		last = part
	}
}
