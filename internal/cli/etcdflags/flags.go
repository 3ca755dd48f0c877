// Package etcdflags gives a command the flags by which it reaches etcd, spelled
// as etcdctl spells them, and makes the client that they describe.
//
// Each flag can also be set in the environment: --endpoints by
// QUOTIENT_ENDPOINTS, --dial-timeout by QUOTIENT_DIAL_TIMEOUT and so on. A flag
// wins over the environment, and the environment over the default. A password
// is never taken from an argument, which every user of the machine can read: it
// comes from QUOTIENT_PASSWORD, from a file, or from a prompt.
package etcdflags

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/quotient-limiter/quotient/internal/keys"
)

// Defaults of the flags.
const (
	DefaultEndpoint       = "127.0.0.1:2379"
	DefaultPrefix         = keys.DefaultPrefix
	DefaultDialTimeout    = 2 * time.Second
	DefaultCommandTimeout = 5 * time.Second
)

// envPassword has no flag, so that no password stands in an argument list.
const envPassword = "QUOTIENT_PASSWORD"

// Flags are the values of the connection flags, and what they are read with.
// Values are final after Resolve. Flags is for one goroutine.
type Flags struct {
	Endpoints      []string
	CACert         string // file of certificates that sign etcd's
	Cert           string // file of the client's certificate
	Key            string // file of the client's key
	User           string
	PasswordFile   string
	Prefix         string // under which all keys lie; ends with a slash
	DialTimeout    time.Duration
	CommandTimeout time.Duration // for each request to etcd

	// Env looks up the environment; default os.Getenv.
	Env func(string) string
	// Stdin is where a password is read from, if it is a terminal; default
	// os.Stdin.
	Stdin io.Reader
	// Stderr is where the prompt goes; default os.Stderr.
	Stderr io.Writer
	// Log takes what the etcd client logs; default: nothing is logged.
	Log *zap.Logger

	flags    []*pflag.Flag // those that Register added
	resolved bool
}

// UsageError says that a flag, or the environment variable that stands for it,
// has a value that cannot be used.
type UsageError struct {
	// Source is the flag or the variable, as the user spelled it; empty if Problem names it.
	Source string
	// Problem says what is wrong with the value and what would be right.
	Problem string
}

// Error implements error.
func (e *UsageError) Error() string { return strings.TrimPrefix(e.Source+": "+e.Problem, ": ") }

// Register adds the connection flags to set and returns their values, which are
// final after set is parsed and Resolve was called.
func Register(set *pflag.FlagSet) *Flags {
	f := &Flags{Env: os.Getenv, Stdin: os.Stdin, Stderr: os.Stderr}
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	own.SortFlags = false
	own.StringSliceVar(&f.Endpoints, "endpoints", []string{DefaultEndpoint}, "etcd `addresses`, separated by commas")
	own.StringVar(&f.CACert, "cacert", "", "`file` of CA certificates that etcd's certificate is checked against")
	own.StringVar(&f.Cert, "cert", "", "`file` of the client certificate")
	own.StringVar(&f.Key, "key", "", "`file` of the client certificate's key")
	own.StringVar(&f.User, "user", "", "etcd user `name`; the password comes from "+envPassword+", --password-file or a prompt")
	own.StringVar(&f.PasswordFile, "password-file", "", "`file` that holds the user's password")
	own.StringVar(&f.Prefix, "prefix", DefaultPrefix, "`prefix` of all keys of Quotient in etcd")
	own.DurationVar(&f.DialTimeout, "dial-timeout", DefaultDialTimeout, "how long connecting and logging in may take")
	own.DurationVar(&f.CommandTimeout, "command-timeout", DefaultCommandTimeout, "how long a request to etcd may take")
	own.VisitAll(func(flag *pflag.Flag) {
		flag.Usage += fmt.Sprintf(" [env %s]", envName(flag.Name))
		f.flags = append(f.flags, flag)
		set.AddFlag(flag)
	})
	return f
}

// Resolve takes from the environment what no flag sets, and checks all values.
// Errors are *UsageError. A second call does nothing.
func (f *Flags) Resolve() error {
	if f.resolved {
		return nil
	}
	for _, flag := range f.flags {
		value := f.Env(envName(flag.Name))
		if flag.Changed || value == "" {
			continue
		}
		if err := flag.Value.Set(value); err != nil {
			return &UsageError{envName(flag.Name), fmt.Sprintf("%q: %v", value, err)}
		}
	}
	if err := f.check(); err != nil {
		return err
	}
	f.resolved = true
	return nil
}

// check finds what is wrong with the values themselves. Files are not read.
func (f *Flags) check() error {
	if err := f.checkEndpoints(); err != nil {
		return err
	}
	switch {
	case strings.Contains(f.User, ":"):
		// The value may hold a password, so it is not repeated.
		return f.bad("user", "holds a colon; a password does not belong here, where others can read it. "+
			"Give the name only, and the password in "+envPassword+", by --password-file, or at the prompt")
	case f.PasswordFile != "" && f.User == "":
		return f.bad("password-file", "is given without --user")
	case (f.Cert == "") != (f.Key == ""):
		given, other := "cert", "key"
		if f.Cert == "" {
			given, other = other, given
		}
		return f.bad(given, "is given without --%s; a client certificate needs both", other)
	case f.Prefix == "":
		return f.bad("prefix", "is empty; leave it out for the default, %s", DefaultPrefix)
	case f.DialTimeout <= 0:
		return f.bad("dial-timeout", "%v is not positive; the default is %v", f.DialTimeout, DefaultDialTimeout)
	case f.CommandTimeout <= 0:
		return f.bad("command-timeout", "%v is not positive; the default is %v", f.CommandTimeout, DefaultCommandTimeout)
	}
	if _, err := keys.New(f.Prefix); err != nil {
		return f.bad("prefix", "%v", err)
	}
	return nil
}

// bad blames the flag, or the variable where the value comes from there.
func (f *Flags) bad(name, format string, args ...any) error {
	return &UsageError{f.source(name), fmt.Sprintf(format, args...)}
}

// source names where the value of a flag comes from.
func (f *Flags) source(name string) string {
	for _, flag := range f.flags {
		if flag.Name == name && !flag.Changed && f.Env(envName(name)) != "" {
			return envName(name)
		}
	}
	return "--" + name
}

func envName(flag string) string {
	return "QUOTIENT_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func demandsTLS(e string) bool {
	return strings.HasPrefix(e, "https://") || strings.HasPrefix(e, "unixs://")
}

// problemOf says what is wrong with an endpoint; "" if it is valid.
func problemOf(endpoint string) string {
	if !strings.Contains(endpoint, "://") {
		endpoint = "//" + endpoint
	}
	u, err := url.Parse(endpoint)
	switch {
	case err == nil && (u.Scheme == "unix" || u.Scheme == "unixs"):
		if u.Host+u.Path == "" {
			return "lacks the path of a socket"
		}
		return ""
	case err == nil && u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https":
		return "has scheme " + strconv.Quote(u.Scheme) + "; known are http, https, unix and unixs"
	case err != nil || u.Host == "":
		return "is not an address; write it like " + DefaultEndpoint
	case u.User != nil:
		return "holds a user; use --user"
	case u.Path != "" || u.RawQuery != "" || u.Fragment != "":
		return "holds more than host and port; write it like " + DefaultEndpoint
	case u.Hostname() == "" || u.Port() == "":
		return "lacks a host or a port; write it like " + DefaultEndpoint
	}
	if n, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || n == 0 {
		return "has port " + u.Port() + ", which is not within 1 to 65535"
	}
	return ""
}

// checkEndpoints checks every endpoint, and refuses what the client would quietly do in
// the clear although certificates are given.
func (f *Flags) checkEndpoints() error {
	if len(f.Endpoints) == 0 {
		return f.bad("endpoints", "is empty; the default is %s", DefaultEndpoint)
	}
	var tls, plain string
	for i, text := range f.Endpoints {
		if text = strings.TrimSpace(text); strings.HasPrefix(text, "http") {
			text = strings.TrimSuffix(text, "/")
		}
		f.Endpoints[i] = text
		if problem := problemOf(text); problem != "" {
			// A user part may hold a password.
			if at := strings.LastIndex(text, "@"); at >= 0 {
				text = "...@" + text[at+1:]
			}
			return f.bad("endpoints", "%q %s", text, problem)
		}
		if demandsTLS(text) {
			tls = text
		} else if strings.Contains(text, "://") {
			plain = text
		}
	}
	if plain != "" && tls != "" {
		return f.bad("endpoints", "%s uses TLS and %s does not; use the same for all", tls, plain)
	}
	if plain != "" && (f.CACert != "" || f.Cert != "") {
		return f.bad("endpoints", "%s is without TLS, but certificates are given; write https:// or host:port only", plain)
	}
	return nil
}
