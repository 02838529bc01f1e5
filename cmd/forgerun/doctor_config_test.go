package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/doctor"
	"github.com/forgerun/forgerun/repo"
)

// only asks for the one finding that is not ok; its text must have the words.
func only(t *testing.T, all doctor.Findings, want doctor.Severity, words ...string) {
	t.Helper()
	var bad doctor.Findings
	for _, f := range all {
		require.NotEmpty(t, f.What)
		require.NotEmpty(t, f.Found)
		require.Equal(t, f.Level != doctor.Healthy, f.Advice != "", "advice for what is not well, and only for that: %v", f)
		require.NotContains(t, f.String(), "\n")
		if f.Level != doctor.Healthy {
			bad = append(bad, f)
		}
	}
	if want == doctor.Healthy {
		require.Empty(t, bad)
		for _, word := range words {
			require.Contains(t, fmt.Sprint(all), word)
		}
		return
	}
	require.Len(t, bad, 1)
	require.Equal(t, want, bad[0].Level)
	for _, word := range words {
		require.Contains(t, bad[0].String(), word)
	}
}

func TestDoctorJudgesTheConfiguration(t *testing.T) {
	t.Parallel()
	good := env{
		"FORGERUN_DATABASE_URL": "postgres://db/x", "FORGERUN_REDIS_URL": "redis://cache", "FORGERUN_MASTER_KEY": masterKey,
		"FORGERUN_PUBLIC_URL": "https://forgerun.example.com", "FORGERUN_ADMIN_ADDR": "127.0.0.1:8081",
	}
	for _, c := range []struct {
		role  string
		env   env
		level doctor.Severity
		words []string
	}{
		{"api", nil, doctor.Healthy, []string{"valid for api"}},
		{"worker", nil, doctor.Healthy, []string{"lease: 30s, heartbeat every 5s, statements up to 5s"}},
		{"webhooks", nil, doctor.Healthy, nil},
		{"worker", env{"FORGERUN_PUBLIC_URL": ""}, doctor.Healthy, nil},
		{"dev", env{"FORGERUN_PUBLIC_URL": "", "FORGERUN_DATABASE_URL": "", "FORGERUN_REDIS_URL": ""}, doctor.Healthy, nil},
		{"api", env{"FORGERUN_MAX_RETRIES": "few"}, doctor.Failing, []string{`FORGERUN_MAX_RETRIES="few": a whole number`}},
		{"webhooks", env{"FORGERUN_MASTER_KEY": ""}, doctor.Failing, []string{"FORGERUN_MASTER_KEY is required"}},
		{"worker", env{"FORGERUN_ADMIN_ADDR": ""}, doctor.Warning, []string{"no metrics"}},
		{"api", env{"FORGERUN_ADMIN_ADDR": "0.0.0.0:8081", "FORGERUN_ADMIN_TOKEN": "0123456789abcdef"}, doctor.Warning,
			[]string{"0.0.0.0:8081 is not on loopback"}},
		{"api", env{"FORGERUN_PUBLIC_URL": ""}, doctor.Warning, []string{"http://127.0.0.1:8080"}},
		{"api", env{"FORGERUN_PUBLIC_URL": "https://localhost:8443"}, doctor.Warning, []string{"on loopback"}},
		{"webhooks", env{"FORGERUN_PUBLIC_URL": "http://[::1]"}, doctor.Warning, []string{"on loopback"}},
		{"api", env{"FORGERUN_PUBLIC_URL": "http://forgerun.example.com"}, doctor.Warning, []string{"not https"}},
		{"api", env{"FORGERUN_OPEN_REGISTRATION": "true", "FORGERUN_WEBHOOK_CHALLENGE": "true"}, doctor.Warning,
			[]string{"FORGERUN_OPEN_REGISTRATION=false"}},
		{"webhooks", env{"FORGERUN_WEBHOOK_ALLOW_PRIVATE": "true"}, doctor.Warning, []string{"FORGERUN_WEBHOOK_ALLOW_PRIVATE=false"}},
		{"worker", env{"FORGERUN_WEBHOOK_ALLOW_PRIVATE": "true"}, doctor.Healthy, nil},
		{"worker", env{"FORGERUN_HEARTBEAT_INTERVAL": "9s"}, doctor.Warning, []string{"FORGERUN_HEARTBEAT_INTERVAL"}},
		{"worker", env{"FORGERUN_DB_TIMEOUT": "25s"}, doctor.Warning, []string{"FORGERUN_LEASE_TIMEOUT"}},
		{"webhooks", env{"FORGERUN_SIGNING_KEY_FILE": "/nowhere"}, doctor.Failing, []string{"/nowhere cannot be read"}},
		{"webhooks", env{"FORGERUN_SIGNING_KEY_FILE": "doctor_config_test.go"}, doctor.Healthy, []string{"can be read"}},
		{"api", env{"FORGERUN_MASTER_KEY": ""}, doctor.Warning, []string{"cannot register webhooks nor rotate"}},
	} {
		environment := merge(good, c.env)
		cfg, bad := LoadConfig(c.role, func(name string) string { return environment[name] })
		fs := configFindings{}
		fs.judgeConfig(c.role, cfg, bad, nil)
		fs.judgeMasterKey(c.role, cfg, &repo.State{HasWebhooks: true})
		only(t, fs.Findings, c.level, c.words...)
	}
	fs := configFindings{}
	fs.judgeConfig("api", Config{}, errors.New("bad configuration:\n  A=1: x\n  B=2: y"), []string{"FORGERUN_TIMESCALE"})
	require.Equal(t, 2, fs.Count(doctor.Failing))
	require.Equal(t, 1, fs.Count(doctor.Warning))
	require.Contains(t, fs.Findings[2].String(), "FORGERUN_TIMESCALE is no variable")
	require.False(t, strings.Contains(fs.Findings[0].String(), "\n"))
	open := configFindings{}
	open.judgeConsent(Config{})
	only(t, open.Findings, doctor.Warning, "FORGERUN_WEBHOOK_CHALLENGE=true")
	asked := configFindings{}
	asked.judgeConsent(Config{WebhookChallenge: true, PublicURL: "https://forgerun.example.com"})
	only(t, asked.Findings, doctor.Healthy, "in the name of forgerun.example.com")
	few, enough, worker := configFindings{}, configFindings{}, configFindings{}
	few.judgeFiles("api", 683)
	only(t, few.Findings, doctor.Warning, "room for 683", "LimitNOFILE")
	enough.judgeFiles("api", fewConnections)
	only(t, enough.Findings, doctor.Healthy, "room for 2000")
	worker.judgeFiles("worker", 683)
	only(t, worker.Findings, doctor.Healthy)
}
