package wire_test

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/api"
	"github.com/forgerun/forgerun/verdict/fault"
	"github.com/forgerun/forgerun/verdict/wire"
)

const (
	one = `01890000-0000-7000-8000-000000000001`
	two = `01890000-0000-7000-8000-000000000002`
)

var (
	odd   = fault.Effect{JobStatus: "PONDERING"}
	open  = fault.Effect{Unfinished: true}
	other = fault.Effect{OtherEnd: true}
)

func TestStatesAreRewritten(t *testing.T) {
	t.Parallel()
	described := func(description string) *wire.Shape {
		a, err := api.Parse([]byte(description))
		require.NoError(t, err)
		shape := a.Shape("", func(id string) (string, bool) { return id, id == one })
		return &shape
	}
	openAI, err := api.Load("openai")
	require.NoError(t, err)
	batches := openAI.Shape("in_progress", func(id string) (string, bool) { return id, id == one })
	azure, google := described("job: {state: [/status, /properties/provisioningState], final: [Succeeded, Failed, Canceled]}"),
		described("job: {id: [/name], state: [/done]}")
	wrapped, cluster := described("job: {id: [/data/id], state: [/data/attributes/status], final: [done, failed]}"),
		described("job: {id: [/metadata/name], state: [/status], final: [Complete, Failed]}")
	service, undescribed := &testbed.Shape, described("")
	for _, c := range []struct {
		shape       *wire.Shape
		e           fault.Effect
		given, want string
	}{
		// ForgeRun.
		{service, odd, `{"job_id":"` + one + `","state":"RUNNING","result":{"state":"AVAILABLE"}}`,
			`{"job_id":"` + one + `","state":"PONDERING","result":{"state":"AVAILABLE"}}`},
		{service, odd, `{"data":[{"job_id":"` + one + `","state":"RUNNING"},{"job_id":"` + two + `","state":"FAILED"}]}`,
			`{"data":[{"job_id":"` + one + `","state":"PONDERING"},{"job_id":"` + two + `","state":"PONDERING"}]}`},
		{service, odd, `{"job_id":"` + one + `","event_name":"job.running","next_state":"RUNNING"}`,
			`{"job_id":"` + one + `","event_name":"job.running","next_state":"PONDERING"}`},
		{service, odd, `{"job_id":"` + one + `","event_name":"job.succeeded","next_state":"SUCCEEDED"}`,
			`{"job_id":"` + one + `","event_name":"job.succeeded","next_state":"SUCCEEDED"}`},
		{service, open, `{"job_id":"` + one + `","state":"FAILED","outcome":"ERROR","finished_at":"x","canceled_at":null,"expires_at":"x",
			"can_retry":true,"retry":{"max":1},"failure":{"jobId":"` + one + `","jobStatus":"FAILED"},
			"links":{"self":"/a","retry":"/b","report":"/c","result":"/d"}}`,
			`{"job_id":"` + one + `","state":"RUNNING","outcome":null,"finished_at":null,"canceled_at":null,"expires_at":null,
			"can_retry":false,"retry":{"max":1},"links":{"self":"/a"}}`},
		{service, fault.Effect{Unfinished: true, JobStatus: "PONDERING"}, `{"job_id":"` + one + `","state":"SUCCEEDED","result":{}}`,
			`{"job_id":"` + one + `","state":"PONDERING"}`},
		{service, open, `{"batch_id":"` + two + `","status":"COMPLETED","completed_at":"x","outcome":{"a":1},
			"counts":{"queued":0,"running":0,"succeeded":2,"failed":1,"canceled":1,"refused":1}}`,
			`{"batch_id":"` + two + `","status":"PROCESSING","completed_at":null,"outcome":null,
			"counts":{"queued":0,"running":4,"succeeded":0,"failed":0,"canceled":0,"refused":1}}`},
		{service, other, `{"job_id":"` + one + `","state":"SUCCEEDED","result":{"a":1}}`,
			`{"job_id":"` + one + `","state":"CANCELED","result":{"a":1}}`},
		{service, other, `{"job_id":"` + one + `","state":"FAILED","failure":{"jobId":"` + one + `","jobStatus":"FAILED"}}`,
			`{"job_id":"` + one + `","state":"CANCELED","failure":{"jobId":"` + one + `","jobStatus":"FAILED"}}`},
		{service, other, `{"batch_id":"` + two + `","status":"COMPLETED"}`, `{"batch_id":"` + two + `","status":"CANCELLED"}`},
		{service, odd, `{"filter":{"batch_id":"` + two + `","state":"FAILED"}}`, `{"filter":{"batch_id":"` + two + `","state":"FAILED"}}`},
		{service, fault.Effect{NullOptional: true}, `{"progress":{"a":1},"warnings":[1]}`, `{"progress":null,"warnings":[1]}`},

		{&batches, open, `{"id":"a","status":"completed","completed_at":7,"expires_at":9,"output_file_id":"f","request_counts":{"a":1}}`,
			`{"id":"a","status":"in_progress","completed_at":null,"expires_at":null,"request_counts":{"a":1}}`},
		{&batches, other, `{"id":"a","status":"completed"}`, `{"id":"a","status":"expired"}`},
		{&batches, open, `{"data":[{"id":"` + one + `","status":"failed","error":{}},{"id":"` + two + `","status":"failed"}]}`,
			`{"data":[{"id":"` + one + `","status":"in_progress"},{"id":"` + two + `","status":"failed"}]}`},
		{&batches, odd, `[{"id":"` + one + `","status":"completed"}]`, `[{"id":"` + one + `","status":"PONDERING"}]`},
		{azure, open, `{"id":"/a","properties":{"provisioningState":"Succeeded","output":1}}`,
			`{"id":"/a","properties":{"provisioningState":"processing"}}`},
		{azure, other, `{"value":[{"id":"` + one + `","properties":{"provisioningState":"Succeeded"}}]}`,
			`{"value":[{"id":"` + one + `","properties":{"provisioningState":"Failed"}}]}`},
		{google, open, `{"name":"operations/1","done":true,"response":{"a":1}}`, `{"name":"operations/1","done":false}`},
		{google, odd, `{"name":"operations/1","done":true,"response":{"a":1}}`, `{"name":"operations/1","done":true,"response":{"a":1}}`},
		{wrapped, open, `{"status":"ok","data":{"id":"` + one + `","attributes":{"status":"done","result_url":"/x"}}}`,
			`{"status":"ok","data":{"id":"` + one + `","attributes":{"status":"processing"}}}`},
		{cluster, open, `{"status":{"succeeded":1,"completionTime":"x","conditions":[{"type":"Complete","status":"True"}]}}`,
			`{"status":{"succeeded":0,"completionTime":null,"conditions":[{"type":"Complete","status":"False"}]}}`},
		{cluster, other, `{"status":{"conditions":[{"type":"Complete","status":"True"},{"type":"Suspended","status":"False"}]}}`,
			`{"status":{"conditions":[{"type":"Failed","status":"True"},{"type":"Suspended","status":"False"}]}}`},
		{undescribed, open, `{"state":"done","error":null}`, `{"state":"processing"}`},
		{undescribed, other, `{"state":"done"}`, `{"state":"done"}`},
		{undescribed, odd, `{"job":{"id":"` + one + `","status":"running"},"customer":{"id":"7","status":"gold"}}`,
			`{"job":{"id":"` + one + `","status":"PONDERING"},"customer":{"id":"7","status":"gold"}}`},
		{undescribed, odd, `{"status":404,"title":"No"}`, `{"status":404,"title":"No"}`},
	} {
		require.JSONEq(t, c.want, string(c.shape.Rewrite(&c.e, []byte(c.given))), "%+v %s", c.e, c.given)
	}
	for _, text := range []string{"", "7", `"a"`, "null", "no JSON"} {
		require.Equal(t, text, string(undescribed.Rewrite(&odd, []byte(text))))
	}
}

// Some parsers use the first of two members with the same name, so the order matters.
func TestMembersKeepTheirOrder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		e           fault.Effect
		given, want string
	}{
		{odd, `{"z":1e400, "state":"A", "b":{"y":[{"q":1,"a":{}}, []],"x":"<"}}`,
			`{"z":1e400,"state":"PONDERING","b":{"y":[{"q":1,"a":{}},[]],"x":"<"}}`},
		{open, `{"z":{"a":[1]},"state":"FAILED","failure":{"a":[{}]},"a":1}`, `{"z":{"a":[1]},"state":"RUNNING","a":1}`},
		{fault.Effect{NullOptional: true}, `{"z":1,"progress":{"a":[2]},"a":[]}`, `{"z":1,"progress":null,"a":[]}`},
		{odd, `{"a":1,"state":"A","a":2}`, `{"a":2,"state":"PONDERING"}`},
		{fault.Effect{OmitOptional: true}, `{"labels":[1]}`, `{}`},
		{odd, `[]`, `[]`},
	} {
		require.Equal(t, c.want, string(testbed.Shape.Rewrite(&c.e, []byte(c.given))))
	}
	deep := strings.Repeat(`{"state":[`, 4000) + strings.Repeat(" ", 1<<20) + strings.Repeat("]}", 4000)
	got := len(testbed.Shape.Rewrite(&fault.Effect{Extensions: true}, []byte(`{"a":`+deep+`}`)))
	require.True(t, got > 4000*12 && got < 1<<20, got)
}

func TestRecordsOfRewrittenDocuments(t *testing.T) {
	t.Parallel()
	ended := `{"job_id":"` + one + `","state":"SUCCEEDED","result":{}}`
	for _, c := range []struct {
		e    fault.Effect
		want verdict.Exchange
	}{
		{odd, verdict.Exchange{Shown: []string{one}, MaybeFinal: []string{one}}},
		{open, verdict.Exchange{Shown: []string{one}}},
		{fault.Effect{JobStatus: "PONDERING", Unfinished: true}, verdict.Exchange{Shown: []string{one}}},
		{other, verdict.Exchange{Final: []string{one}}},
	} {
		var x verdict.Exchange
		testbed.Shape.Rewritten(&c.e, []byte(ended), &x)
		require.Equal(t, c.want, x)
	}
}

func TestRewrittenStreams(t *testing.T) {
	t.Parallel()
	const events = "retry: 50\n\n: hello\n\nid: 1\nevent: a\nretry: 60\ndata: {\"job_id\":\"" + one + "\",\"state\":\"DONE\"}\n\n"
	const later = "id: later\x00version\nevent: forgerun.later-version\ndata: {}\n\n"
	for name, c := range map[string]struct {
		e             fault.Effect
		written, want string
		retry         int
	}{
		"extra events": {fault.Effect{ExtraEvents: true}, events, events + later, 60},
		"retry": {fault.Effect{StreamRetry: 9000}, events,
			"retry: 9000\n\n" + strings.NewReplacer("retry: 50\n\n", "", "retry: 60\n", "").Replace(events), 9000},
		"after the head": {fault.Effect{StreamRetry: 9000}, "HTTP/1.1 200 OK\r\nContent-Type: a\r\n\r\n: x\n\n",
			"HTTP/1.1 200 OK\r\nContent-Type: a\r\n\r\nretry: 9000\n\n: x\n\n", 9000},
		"carriage returns": {fault.Effect{StreamRetry: 9000}, "retry: 5\r\n\r\ndata: a\r\nretry: 6\r\n\r\n", "retry: 9000\n\ndata: a\n\n", 9000},
		"states":           {odd, events, strings.Replace(events, "DONE", "PONDERING", 1), 60},
		"silence":          {*(&fault.Effect{Close: fault.CloseStall}).OnStream(), events, "retry: 50\n\n: hello\n\n", 50},
	} {
		var out strings.Builder
		closed := make(chan struct{})
		close(closed)
		noted := 0
		s := &wire.Stream{To: &out, Shape: &testbed.Shape, Effect: &c.e, Closed: closed, Note: func(data []byte) {
			if noted++; c.e.StreamRetry == 0 {
				require.Contains(t, string(data), "DONE", "Note gets the original data")
			}
		}}
		_, err := io.WriteString(s, c.written)
		require.Equal(t, name == "silence", err != nil)
		require.Equal(t, c.want, out.String(), name)
		part := s.Part()
		require.Equal(t, c.retry, part.Retry, name)
		require.Equal(t, noted, part.Events, name)
		require.Equal(t, strings.Count(c.want, "data:")-strings.Count(c.want, later), part.Events, name)
		require.NotContains(t, part.IDs, "later\x00version")
	}
}
