package handlers

import (
	"bytes"
	"html/template"
	"slices"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/job"
)

// relations are the link relations of this API's own (RFC 8288, section 2.1.2).
// Link headers name the addresses of their pages.
var relations = []relationSpec{
	{"job-result", "Result of a job",
		"The target is what the job produced. It is there once the job has succeeded and until the result expires, and it is read with GET and the same API key."},
	{"batch-jobs", "Jobs of a batch",
		"The target is the list of the batch's jobs with their item ids, in pages. It is read with GET and the same API key."},
}

type relationSpec struct{ Name, Title, About string }

// relationPage answers with the page that a relation type points to.
func (*Server) relationPage(r *call) error {
	i := slices.IndexFunc(relations, func(rel relationSpec) bool { return rel.Name == r.Params("name") })
	if i < 0 {
		return job.Errorf(job.CodeRequestNotFound, "There is no link relation of this name.")
	}
	var page bytes.Buffer
	if err := relationTemplate.Execute(&page, relations[i]); err != nil {
		return err
	}
	return r.html(page.Bytes())
}

// html answers with a page of the program's own. It loads nothing from
// anywhere.
func (r *call) html(page []byte) error {
	r.Set(fiber.HeaderContentType, fiber.MIMETextHTMLCharsetUTF8)
	r.Set(fiber.HeaderContentSecurityPolicy, "default-src 'none'; style-src 'unsafe-inline'")
	r.Set(fiber.HeaderCacheControl, "max-age=3600")
	return r.Send(page)
}

var relationTemplate = template.Must(template.Must(pageTemplates.Clone()).Parse(`{{template "head" .Title}}<h1>{{.Title}}</h1>
<p>This is the link relation <code>{{.Name}}</code> of <code>Link</code> headers (RFC 8288).</p>
<p>{{.About}}</p>
<p><a href="../docs">The API</a></p>
</body>
</html>
`))
