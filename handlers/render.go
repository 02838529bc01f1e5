package handlers

import (
	"cmp"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/job"
)

// The shapes of answers (section 8): snake_case, times in RFC 3339 with Z. The
// outcome documents of the draft are job.Document.

type clientView struct {
	ClientID job.ID `json:"client_id"`
}

type keyView struct {
	APIKey    *string  `json:"api_key"` // null when the key existed already
	KeyID     string   `json:"key_id"`
	CreatedAt job.Time `json:"created_at"`
	ExpiresAt job.Time `json:"expires_at"`
}

func keyViewOf(k job.IssuedKey) keyView {
	return keyView{orNull(k.Secret), k.ID, job.Time(k.CreatedAt), job.Time(k.ExpiresAt)}
}

type revokedView struct {
	Revoked bool `json:"revoked"`
}

type receiptView struct {
	JobID     job.ID    `json:"job_id"`
	State     job.State `json:"state"`
	CreatedAt job.Time  `json:"created_at"`
}

// sendReceipt answers 202 with v, as json would. No other answer is given so
// often, and reflection would take a tenth of the whole request.
func (r *call) sendReceipt(v receiptView) {
	created, _ := v.CreatedAt.MarshalText() // cannot fail
	body := append(make([]byte, 0, 160), `{"job_id":"`...)
	body = append(append(body, v.JobID.String()...), `","state":"`...)
	body = append(append(body, v.State...), `","created_at":"`...)
	body = append(append(body, created...), "\"}\n"...)
	r.Response().SetBody(body)
	r.Status(fiber.StatusAccepted)
	r.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
}

type changeView struct {
	JobID     job.ID    `json:"job_id"`
	State     job.State `json:"state"`
	UpdatedAt job.Time  `json:"updated_at"`
}

type retryView struct {
	changeView
	Attempt int `json:"attempt"`
}

// orNull makes the absent value null.
func orNull[T ~string](s T) *T {
	if s == "" {
		return nil
	}
	return &s
}

// idOrNull makes the id that means none null.
func idOrNull(id job.ID) *job.ID {
	if id.IsZero() {
		return nil
	}
	return &id
}

// wantsDocument reports whether the client prefers the draft's view to that of
// the API.
func (r *call) wantsDocument() bool {
	return prefersMedia(r.list(fiber.HeaderAccept), mimeProblem, fiber.MIMEApplicationJSON)
}

// mediaOf gives the media type of an outcome document (draft section 11.7).
func mediaOf(d job.Document) string {
	if d.IsProblem() {
		return mimeProblem
	}
	return fiber.MIMEApplicationJSON
}

// inLanguage names the language of the texts in an answer.
func (r *call) inLanguage(language string) {
	r.Set(fiber.HeaderContentLanguage, cmp.Or(language, job.Languages[0]))
}

// relate adds a link from the answer's resource to another one. rel is a
// registered relation or a URI.
func (r *call) relate(path, rel string) {
	r.Append(fiber.HeaderLink, "<"+path+`>; rel="`+rel+`"`)
}
