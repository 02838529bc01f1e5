package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	maxAge      = 5 * time.Minute
	maxDelivery = 8 << 20
	// How long the receiver still answers deliveries after the webhook was deleted.
	lateDeliveries = 3 * time.Second
)

// webhookOnly gets all outcomes from deliveries. In structured mode, the signature covers all that the client uses.
func webhookOnly(ctx context.Context, a *api) ([]*intention, error) {
	deliveries := newInbox()
	hook, err := register(ctx, a, deliveries, "structured")
	if err != nil {
		return nil, err
	}
	jobs := intentions(6)
	if err := a.submitAll(ctx, jobs); err != nil {
		return nil, err
	}
	if err := updateFromInbox(ctx, deliveries, jobs); err != nil {
		return nil, err
	}
	return jobs, hook.remove(ctx, a)
}

// hook is a webhook and its receiver.
type hook struct {
	id         string
	key        []byte
	structured bool
	into       *inbox
	server     *http.Server

	mu   sync.Mutex
	seen map[string]bool // by webhook-id
}

// register starts a receiver and registers its webhook. If the response with the secret was lost, it rotates the secret.
func register(ctx context.Context, a *api, into *inbox, mode string) (*hook, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	var made struct {
		ID     string `json:"webhook_id"`
		Secret string `json:"secret"`
	}
	_, err = a.call(ctx, request{
		method: "POST", path: "/v1/webhooks", header: map[string]string{"Idempotency-Key": rand.Text()},
		body: map[string]any{
			"url":    "http://" + listener.Addr().String() + "/hook",
			"events": []string{"job.succeeded", "job.failed", "job.canceled", "job.retries_exhausted"}, "content_mode": mode,
		},
	}, &made, http.StatusCreated)
	if err == nil && made.Secret == "" {
		_, err = a.call(ctx, request{method: "POST", path: "/v1/webhooks/" + made.ID + "/rotate-secret"}, &made, http.StatusOK)
	}
	if err != nil {
		return nil, err
	}
	h := &hook{id: made.ID, structured: mode == "structured", into: into, seen: map[string]bool{}}
	if h.key, err = base64.StdEncoding.DecodeString(strings.TrimPrefix(made.Secret, "whsec_")); err != nil {
		return nil, err
	}
	h.server = &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = h.server.Serve(listener) }()
	return h, nil
}

// remove deletes the webhook, and stops its receiver a little later.
func (h *hook) remove(ctx context.Context, a *api) error {
	_, err := a.call(ctx, request{method: "DELETE", path: "/v1/webhooks/" + h.id}, nil, http.StatusOK, http.StatusNotFound)
	return errors.Join(err, pause(ctx, lateDeliveries), h.server.Shutdown(ctx))
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxDelivery))
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if err := h.verify(r.Header, body); err != nil && !mistaken("tampered-refused") {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	h.take(w, r.Header, body)
}

// take adds the notice of a delivery to the inbox, unless it is a duplicate.
func (h *hook) take(w http.ResponseWriter, header http.Header, body []byte) {
	event, err := h.event(header, body)
	if err != nil || mistaken("unknown-state-of-a-delivery-is-refused") && bytes.Contains(body, []byte("PONDERING")) {
		err = errors.Join(err, errors.New("the delivery cannot be read"))
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	status, id := http.StatusNoContent, header.Get("webhook-id")
	if !h.seen[id] {
		h.seen[id] = true
		h.into.add(event)
	} else if mistaken("repeated-delivery") {
		status = http.StatusConflict
	}
	if mistaken("deliveries-answered") {
		status = http.StatusInternalServerError
	}
	w.WriteHeader(status)
}

func (h *hook) event(header http.Header, body []byte) (notice, error) {
	if !h.structured {
		return parseNotice(header.Get("ce-type"), body)
	}
	var whole struct {
		Type string          `json:"type"`
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(body, &whole); err != nil {
		return notice{}, err
	}
	return parseNotice(whole.Type, whole.Data)
}

// verify checks the age and the signature of a delivery as in Standard Webhooks.
func (h *hook) verify(header http.Header, body []byte) error {
	id, timestamp := header.Get("webhook-id"), header.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || id == "" {
		return errors.New("webhook-id or webhook-timestamp is missing")
	}
	if age := time.Since(time.Unix(seconds, 0)); age.Abs() > maxAge {
		return fmt.Errorf("the delivery is %s old", age)
	}
	mac := hmac.New(sha256.New, h.key)
	_, _ = fmt.Fprintf(mac, "%s.%s.", id, timestamp)
	_, _ = mac.Write(body)
	wanted := mac.Sum(nil)
	for entry := range strings.FieldsSeq(header.Get("webhook-signature")) {
		version, text, _ := strings.Cut(entry, ",")
		given, err := base64.StdEncoding.DecodeString(text)
		if version == "v1" && err == nil && hmac.Equal(given, wanted) {
			return nil
		}
	}
	return errors.New("no signature matches")
}
