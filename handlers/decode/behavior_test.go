package decode

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

var testBed = Limits{MaxPayload: 1 << 20, TestBed: true}

func customBody(behavior string) string {
	return `{"type":"EXECUTE","params":{"behavior":` + behavior + `},"work_kind":"CUSTOM"}`
}

func ref[T any](v T) *T { return &v }

func TestBehaviorIsRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]job.Behavior{
		`null`: {},
		`{}`:   {},
		`{"seed":null,"duration":null,"jitter":null,"steps":null,"failures":null,"result":null,"emit":null,"cpu":null,"memory_bytes":null,
			"io_bytes":null}`: {},
		`{"seed":0,"duration":"1m30s","jitter":"0","steps":100,"cpu":0.25,"memory_bytes":67108864,"io_bytes":41943040}`: {
			Seed: ref(int64(0)), Duration: 90 * time.Second, Steps: 100, CPU: 0.25, MemoryBytes: 64 << 20, IOBytes: 40 << 20},
		`{"failures":[{"attempts":[1,101],"after":"2s","problem":{"type":"urn:x:y","title":"T","status":599,"detail":"d",
			"code":"RFA_EXEC_TIMEOUT","retryable":false,"retryAfter":86400,"stage":"delivery","item": 17,"s_\u0068elf":{"a":[1.50]}}},
			{"attempts":[2],"problem":{}}]}`: {
			Failures: []job.PlannedFailure{{Attempts: []int{1, 101}, After: ref(2 * time.Second), Problem: job.PlannedProblem{
				Type: "urn:x:y", Title: "T", Status: 599, Detail: "d", Code: job.CodeTimeout, Retryable: ref(false), RetryAfter: 86_400,
				Stage: job.StageDelivery, Extensions: json.RawMessage(`{"item":17,"s_helf":{"a":[1.50]}}`)}}, {Attempts: []int{2}}}},
		`{"result":{"media_type":"text/plain; charset=utf-8","body":"\u00fc\n"}}`: {
			Result: job.PlannedResult{MediaType: "text/plain; charset=utf-8", Body: ref("ü\n")}},
		`{"result":{"size":262144}}`: {Result: job.PlannedResult{Size: ref(256 << 10)}},
		`{"emit":[{"name":"a.b","data":{"x":[1]},"after":"1ms"},{"name":"c","data":null}]}`: {Emit: []job.PlannedEvent{
			{Emission: job.Emission{Name: "a.b", Data: json.RawMessage(`{"x":[1]}`)}, After: time.Millisecond},
			{Emission: job.Emission{Name: "c"}}}},
	} {
		r := read(t, Job, customBody(text), testBed)
		require.Empty(t, r.Violations, text)
		require.Equal(t, &want, r.Behavior, text)
		require.Empty(t, r.Warnings)
	}
}

func TestBadBehaviors(t *testing.T) {
	t.Parallel()
	for text, at := range map[string]string{
		`[]`: "", `{"x":1}`: "/x", `{"Duration":"1s"}`: "/Duration", `{"seed":9007199254740992}`: "/seed", `{"seed":1.5}`: "/seed",
		`{"duration":"1"}`: "/duration", `{"duration":"25h"}`: "/duration", `{"duration":"1 s"}`: "/duration", `{"jitter":"1d"}`: "/jitter",
		`{"duration":"` + strings.Repeat("0", 63) + `1s"}`: "/duration", `{"failures":[{"attempts":[]}]}`: "/failures/0/attempts",
		`{"failures":[{"attempts":[1,102]}]}`: "/failures/0/attempts/1", problemOf(`"type":"http://a b"`): problemAt + "/type",
		problemOf(`"detail":"\n"`): problemAt + "/detail", problemOf(`"code":"RFA_JOB_NOT_FOUND"`): problemAt + "/code",
		problemOf(`"retry_after":1`): problemAt + "/retry_after", problemOf(`"processingStage":"storage"`): problemAt + "/processingStage",
		problemOf(`"jobId":null`): problemAt + "/jobId", problemOf(`"instance":"/x"`): problemAt + "/instance",
		problemOf(`"a":1`): problemAt + "/a", problemOf(`"a b c":1`): problemAt + "/a b c", problemOf(`"":1`): problemAt + "/",
		problemOf(`"text":"` + strings.Repeat("x", 2048) + `"`): problemAt, problemOf(manyMembers(21)): problemAt,
		`{"result":{"size":1,"body":""}}`: "/result", `{"result":{"body":"` + strings.Repeat("ä", 128<<10+1) + `"}}`: "/result/body",
		`{"result":{"media_type":"text"}}`: "/result/media_type", `{"result":{"media_type":"*/*"}}`: "/result/media_type",
		`{"result":{"media_type":"a/b\r\nX: y"}}`: "/result/media_type",
	} {
		r := read(t, Job, customBody(text), testBed)
		require.Len(t, r.Violations, 1, "%.200s", text)
		require.Equal(t, "/params/behavior"+at, r.Violations[0].Pointer, "%.200s", text)
		require.NotEmpty(t, r.Violations[0].Detail)

		items := `{"jobs":[{"type":"EXECUTE"},` + customBody(text) + `]}`
		batch := read(t, Batch, items, testBed)
		require.Equal(t, r.Violations, batch.Items[1].Request.Violations, "pointers begin at the item")
	}
}

const problemAt = "/failures/0/problem"

func problemOf(members string) string {
	return `{"failures":[{"attempts":[1],"problem":{` + members + `}}]}`
}

func manyMembers(n int) string {
	members := make([]string, n)
	for i := range members {
		members[i] = `"abc` + strings.Repeat("d", i) + `":1`
	}
	return strings.Join(members, ",")
}

func TestIgnoredParams(t *testing.T) {
	t.Parallel()
	warned := func(params, kind string) (at []string) {
		r := read(t, Job, `{"type":"EXECUTE","work_kind":`+kind+`,"params":`+params+`}`, testBed)
		require.Empty(t, r.Violations)
		for _, w := range r.Warnings {
			require.NotEmpty(t, w.Detail)
			at = append(at, w.Pointer)
		}
		return at
	}
	require.Empty(t, warned(`{}`, `null`))
	require.Empty(t, warned(`null`, `null`))
	require.Equal(t, []string{"/params/a~1b~0", "/params/behavior", "/params/ü"},
		warned(`{"a/b~":{"x":[1]},"behavior":{},"\u00fc":2}`, `"RUNS_LONG"`))
	require.Equal(t, []string{"/params/duration_ms"}, warned(`{"duration_ms":100,"behavior":{"duration":"1s"}}`, `"CUSTOM"`))
	require.Equal(t, []string{"/params/duration_ms"}, warned(`{"duration_ms":100}`, `null`))
	many := warned(`{`+manyMembers(14)+`}`, `null`)
	require.Len(t, many, 11)
	require.Equal(t, "/params", many[10])
	require.Equal(t, []string{"/params"}, warned(`{"`+strings.Repeat("x", 300)+`":1}`, `null`))
}

func FuzzBehavior(f *testing.F) {
	for _, seed := range []string{`{}`, `null`, `{"duration":"1s","jitter":"1ms","steps":3}`, problemOf(`"retryAfter":1,"item":{"a":[]}`),
		`{"emit":[{"name":"a","data":{},"after":"1s"}],"result":{"body":"x"}}`, `{"result":{"size":1},"cpu":1,"seed":5}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !json.Valid([]byte(text)) {
			return
		}
		r, err := Job([]byte(customBody(text)), "", testBed)
		if err != nil {
			return
		}
		for _, v := range r.Violations {
			require.True(t, strings.HasPrefix(v.Pointer, "/params"), v.Pointer)
		}
		if len(r.Violations) > 0 || len(r.Behavior.Check(time.Hour)) > 0 {
			return
		}
		d := job.DefineCustom(job.Execute, r.Behavior, time.UnixMicro(1), nil)
		require.NoError(t, d.Validate())
		stored, err := json.Marshal(d)
		require.NoError(t, err)
		var read job.Definition
		require.NoError(t, json.Unmarshal(stored, &read))
		timeline := read.Timeline(1)
		require.Equal(t, d.Timeline(1).End, timeline.End)
		require.True(t, timeline.End >= 0 && timeline.End < time.Hour)
		_, document, err := job.Links{}.Document(job.Origin{Failures: read.Behavior.Failures}, job.Attempt{Number: 1, State: job.Failed,
			Failure: job.NewFailure(job.CustomFailed, 1, job.Backoff{})}).Encode()
		require.NoError(t, err)
		require.True(t, json.Valid(document), "%s", document)
	})
}
