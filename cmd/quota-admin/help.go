package main

// exitCodes is the last part of the root's help.
const exitCodes = `Changes are recorded as made by user@host, or by ` + envAuthor + ` where it is set.

Exit codes:
  0  done
  1  failed
  2  bad usage
  3  not found
  4  revision conflict: somebody else changed it meanwhile
  5  etcd cannot be reached
  6  not permitted by etcd
  7  refused by a guard rail: --max-step, a bad policy, too short an announcement
  8  written, but not applied by every instance in time (--wait)
`

// usageTemplate shows a command's own flags only. The connection flags are many
// and the same for all, so they stand in the root's help.
const usageTemplate = `Usage:
  {{if .Runnable}}{{if .HasParent}}{{.UseLine}}{{else}}quota-admin COMMAND{{end}}{{else}}{{.CommandPath}} COMMAND{{end}}
{{- if .HasExample}}

Examples:
{{.Example}}{{end}}
{{- if .HasAvailableSubCommands}}

Commands:{{range .Commands}}{{if or .IsAvailableCommand (eq .Name "help")}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}
{{- if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsagesWrapped 100 | trimTrailingWhitespaces}}{{end}}
{{- if .HasParent}}

Connection flags, -o table|json|yaml and exit codes: quota-admin --help
{{- else}}

` + exitCodes + `{{end}}
`
