package handlers

import (
	"bytes"
	"html/template"

	"github.com/forgerun/forgerun/job"
)

// problemPage answers with the page that a problem type URI points to.
func (s *Server) problemPage(r *call) error {
	page, ok := s.pages[r.Params("slug")]
	if !ok {
		return job.Errorf(job.CodeRequestNotFound, "There is no problem type of this name.")
	}
	return r.html(page)
}

// entry is what a page says of one problem type.
type entry struct {
	Slug, Title, About, Action string
	Code                       job.Code
	Status                     int
	Failure                    bool // of a job, not of a request
	Batch                      bool // of a batch
	Retryable                  bool
	Stage                      job.Stage
}

// index is what the first page lists.
type index struct {
	Entries []entry
	Stages  []job.StageSpec
}

// problemPages renders one page for each problem type, and the index as "".
func problemPages() map[string][]byte {
	var entries []entry
	for _, c := range job.Codes {
		entries = append(entries, entry{Slug: c.Slug, Title: c.Title, Action: c.Action, Code: c.Code, Status: c.Status})
	}
	for _, reason := range job.Reasons {
		spec := reason.Code.Spec()
		entries = append(entries, entry{
			Slug: string(reason.Reason), Title: reason.Title, About: reason.Detail, Code: reason.Code, Status: spec.Status,
			Failure: true, Retryable: reason.Retryable, Stage: reason.Stage,
		})
	}
	entries = append(entries,
		entry{Slug: job.BatchPartiallyFailed, Title: "Batch partially failed", Status: 207, Batch: true,
			About: "All jobs of a batch have ended. Some succeeded, others failed, timed out or were canceled."},
		entry{Slug: job.BatchFailed, Title: "Batch failed", Status: 500, Batch: true,
			About: "All jobs of a batch have ended, and none succeeded."})
	pages := map[string][]byte{"": renderPage("index", index{entries, job.Stages})}
	for _, e := range entries {
		pages[e.Slug] = renderPage("one", e)
	}
	return pages
}

// renderPage cannot fail: template and data are the program's own, and a test
// renders every page.
func renderPage(name string, data any) []byte {
	var page bytes.Buffer
	if err := pageTemplates.ExecuteTemplate(&page, name, data); err != nil {
		panic(err)
	}
	return page.Bytes()
}

var pageTemplates = template.Must(template.New("").Parse(`
{{define "head"}}<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.}}</title>
<style>
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 45rem; margin: 2rem auto; padding: 0 1rem; }
code { font-size: .9em; }
dt { font-weight: bold; margin-top: .75rem; }
dd { margin: 0; }
</style>
</head>
<body>
{{end}}
{{define "index"}}{{template "head" "Problem types"}}<h1>Problem types</h1>
<p>The <code>type</code> of a problem document (RFC 9457) is the address of one of these pages.</p>
<ul>
{{range .Entries}}<li><a href="{{.Slug}}">{{.Slug}}</a>: {{.Title}} ({{with .Code}}<code>{{.}}</code>, {{end}}{{.Status}})</li>
{{end}}</ul>
<h2 id="stages">Processing stages</h2>
<p>The <code>processingStage</code> of an outcome document says at which step a job failed.</p>
<dl>
{{range .Stages}}<dt><code>{{.Stage}}</code></dt><dd>{{.About}}</dd>
{{end}}</dl>
</body>
</html>
{{end}}
{{define "one"}}{{template "head" .Title}}<h1>{{.Title}}</h1>
<dl>
{{with .Code}}<dt>Code</dt><dd><code>{{.}}</code></dd>
{{end}}{{if .Batch}}<dt>What happened</dt><dd>{{.About}} The failed items are in <code>results</code>, at most 50; all jobs are in the list of the batch's jobs.</dd>
<dt>Status</dt><dd>{{.Status}}, what a synchronous answer would have been</dd>
{{else if .Failure}}<dt>What happened</dt><dd>An attempt of a job failed. {{.About}}</dd>
<dt>Stage</dt><dd><a href="./#stages"><code>{{.Stage}}</code></a></dd>
<dt>Retryable</dt><dd>{{if .Retryable}}Yes: another attempt may succeed. Wait as long as <code>retryAfter</code> says.{{else}}No: another attempt is expected to fail in the same way.{{end}}</dd>
<dt>Status</dt><dd>{{.Status}}, what a synchronous answer would have been</dd>
{{else}}<dt>Status</dt><dd>{{.Status}}</dd>
<dt>What to do</dt><dd>{{.Action}}</dd>
{{end}}</dl>
<p><a href="./">All problem types</a></p>
</body>
</html>
{{end}}
`))
