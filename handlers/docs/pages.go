package docs

import (
	"bytes"
	"embed"
	"html/template"

	"github.com/forgerun/forgerun/job"
)

var (
	//go:embed *.html
	pages embed.FS
	//go:embed base.css
	baseStyle string
)

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"style": func() template.CSS { return template.CSS(baseStyle) }, //nolint:gosec // a constant of this program
}).ParseFS(pages, "*.html"))

// Relation returns the page about one of the API's own link relations.
func Relation(name string) (page []byte, ok bool) {
	for _, r := range relations {
		if r.Name == name {
			return renderPage("relation", r), true
		}
	}
	return nil, false
}

// Missing returns the page for unknown paths. Links on the page begin with `base`.
func Missing(detail, base string) []byte {
	return renderPage("missing", struct{ Detail, Base string }{detail, base})
}

// relations are the API's own link relations (RFC 8288, section 2.1.2). Link headers refer to a relation by the URL of its page.
var relations = []relationSpec{
	{"job-result", "Result of a job",
		"The target is the output of the job. It is available after the job succeeds, until the result expires. " +
			"Read it with GET and the same API key."},
	{"batch-jobs", "Jobs of a batch",
		"The target is the list of the batch's jobs with their item ids, in pages. Read it with GET and the same API key."},
}

type relationSpec struct{ Name, Title, About string }

type entry struct {
	Slug, Title, About, Action string
	Code                       job.Code
	Status                     int
	Failure                    bool // the page is about a failed job, not a refused request
	Batch                      bool // the page is about a batch outcome
	Retryable                  bool
	Stage                      job.Stage

	Repeat string // advice about sending the request again
	Sample string
}

type index struct {
	Base    string // text before the slug in a link
	Groups  []group
	Stages  []job.StageSpec
	DocsURL string // relative URL of the page that documents the API
}

type group struct {
	ID, Title string
	Entries   []entry
}

// ProblemIndex returns the page that lists all problem types. Links on the page begin with `base`. docsURL is the relative URL of the page
// that documents the API.
func ProblemIndex(base, docsURL string) []byte {
	groups := []group{
		{ID: "requests", Title: "Refused and failed requests"}, {ID: "jobs", Title: "Failed attempts of jobs"},
		{ID: "batches", Title: "Failed batches"},
	}
	for _, e := range problemEntries() {
		i := 0
		switch {
		case e.Failure:
			i = 1
		case e.Batch:
			i = 2
		}
		groups[i].Entries = append(groups[i].Entries, e)
	}
	return renderPage("index", index{base, groups, job.Stages, docsURL})
}

// ProblemTypes returns the slugs of all problem types.
func ProblemTypes() []string {
	var slugs []string
	for _, e := range problemEntries() {
		slugs = append(slugs, e.Slug)
	}
	return slugs
}

// ProblemPages renders a page for each problem type, for a service at publicURL. The keys of the map are slugs.
func ProblemPages(publicURL string) map[string][]byte {
	pages := map[string][]byte{}
	for _, e := range problemEntries() {
		e.Sample, e.Repeat = sampleOf(e, job.Links{PublicURL: publicURL}), repeatOf(e)
		pages[e.Slug] = renderPage("problem", e)
	}
	return pages
}

func problemEntries() []entry {
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
	return append(entries,
		entry{Slug: job.BatchPartiallyFailed, Title: "Batch partially failed", Status: 207, Batch: true,
			About: "All jobs of a batch have ended. At least one item failed, timed out or was refused, and at least one did not."},
		entry{Slug: job.BatchFailed, Title: "Batch failed", Status: 500, Batch: true,
			About: "All jobs of a batch have ended, and every item failed, timed out or was refused."})
}

// renderPage cannot fail: a test renders every page.
func renderPage(name string, data any) []byte {
	var page bytes.Buffer
	if err := templates.ExecuteTemplate(&page, name, data); err != nil {
		panic(err)
	}
	return page.Bytes()
}
