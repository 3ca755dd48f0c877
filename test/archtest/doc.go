// Package archtest holds what the project promises about its own source: who
// may import whom, and house rules that a linter does not know. It consists of
// tests; a failure gives the reason for the rule.
package archtest
