module github.com/quotient-limiter/quotient/examples/github-client

go 1.26.0

replace github.com/quotient-limiter/quotient => ../../

require (
	github.com/google/go-github/v83 v83.0.0
	github.com/quotient-limiter/quotient v0.0.0-00010101000000-000000000000
)

require (
	github.com/dunglas/httpsfv v1.1.2 // indirect
	github.com/google/go-querystring v1.2.0 // indirect
	github.com/hashicorp/golang-lru/v2 v2.0.7 // indirect
)
