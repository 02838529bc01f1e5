module example.com/verify

go 1.24

require (
	github.com/dunglas/httpsfv v1.1.2
	github.com/standard-webhooks/standard-webhooks/libraries v0.0.1
)
