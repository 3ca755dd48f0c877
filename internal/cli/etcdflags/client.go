package etcdflags

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/term"
	"google.golang.org/grpc/connectivity"

	"github.com/quotient-limiter/quotient/internal/certs"
	"github.com/quotient-limiter/quotient/internal/diagnose"
	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
)

// A connection on which nothing was heard for keepAliveTime is probed, and given
// up after another keepAliveTimeout: so a host that vanished without a word is
// noticed within 13 s, where TCP alone takes minutes.
const (
	keepAliveTime    = 10 * time.Second
	keepAliveTimeout = 3 * time.Second
)

// Client returns a client for the etcd that the flags describe. It does not wait for a
// connection unless a user has to log in. It ends when ctx does; the caller closes it.
// A fault of flags or files is a *UsageError. Where the log-in takes longer than DialTimeout
// the error is an etcdcall.ErrUnreachable that says so; other errors are those of the etcd client.
func (f *Flags) Client(ctx context.Context) (*clientv3.Client, error) {
	c, err := f.config(ctx)
	if err != nil {
		return nil, err
	}
	if c.Password, err = f.password(); err != nil {
		return nil, err
	}
	c.Username = f.User
	client, err := clientv3.New(c)
	if f.User != "" && etcdcall.Late(err) {
		late := fmt.Sprintf("log in: no answer within %v (--dial-timeout); raise that if etcd has many passwords to check", f.DialTimeout)
		return nil, cause.Worded(late, etcdcall.ErrUnreachable, err)
	}
	return client, err
}

// Reach waits until the client has a connection, at most as long as DialTimeout.
func (f *Flags) Reach(ctx context.Context, client *clientv3.Client) error {
	ctx, done := context.WithTimeout(ctx, f.DialTimeout)
	defer done()
	conn := client.ActiveConnection()
	for conn.Connect(); ; {
		state := conn.GetState()
		if state == connectivity.Ready {
			return nil
		}
		if !conn.WaitForStateChange(ctx, state) {
			return fmt.Errorf("%w within %v (--dial-timeout)", etcdcall.ErrUnreachable, f.DialTimeout)
		}
	}
}

// Diagnose says, for each endpoint, how far a connection gets, and what helps. It is for the
// moment when etcd has not answered: cause is the error of the request.
func (f *Flags) Diagnose(ctx context.Context, cause error) []string {
	c, err := f.config(ctx)
	if err == nil {
		var client *clientv3.Client
		if client, err = clientv3.New(c); err == nil {
			defer client.Close()
			return diagnose.Lines(diagnose.Endpoints(ctx, client, cause))
		}
	}
	return []string{err.Error()}
}

func (f *Flags) config(ctx context.Context) (c clientv3.Config, err error) {
	if err := f.Resolve(); err != nil {
		return c, err
	}
	secure, err := f.tlsConfig()
	return clientv3.Config{
		Context: ctx, Endpoints: f.Endpoints, DialTimeout: f.DialTimeout,
		DialKeepAliveTime: keepAliveTime, DialKeepAliveTimeout: keepAliveTimeout,
		TLS: secure, Logger: cmp.Or(f.Log, zap.NewNop()),
	}, err
}

// tlsConfig returns nil where nothing asks for TLS.
func (f *Flags) tlsConfig() (*tls.Config, error) {
	if f.CACert == "" && f.Cert == "" && !slices.ContainsFunc(f.Endpoints, demandsTLS) {
		return nil, nil
	}
	if _, err := certs.Client(f.CACert, "", ""); err != nil {
		return nil, f.unreadable("cacert", err)
	}
	c, err := certs.Client(f.CACert, f.Cert, f.Key)
	if path, ok := errors.AsType[*fs.PathError](err); ok && path.Path == f.Key && f.Key != f.Cert {
		return nil, f.unreadable("key", err)
	}
	if err != nil {
		return nil, f.unreadable("cert", err)
	}
	return c, nil
}

// CertificateUser returns the client certificate's common name, by which etcd knows
// who connects without --user; "" if there is none.
func (f *Flags) CertificateUser() string {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil || pair.Leaf == nil {
		return ""
	}
	return pair.Leaf.Subject.CommonName
}

// password finds the user's password: what was given by a flag first, then the
// environment, then the prompt.
func (f *Flags) password() (string, error) {
	if f.User == "" {
		return "", nil
	}
	password := f.Env(envPassword)
	if f.PasswordFile != "" && (password == "" || f.source("password-file") == "--password-file") {
		text, err := ReadSecret(f.PasswordFile)
		if err != nil {
			return "", f.unreadable("password-file", err)
		}
		return text, nil
	}
	if password != "" {
		return password, nil
	}
	text, ok, err := f.Ask("Password of etcd user " + f.User + ": ")
	switch {
	case !ok:
		return "", f.bad("user", "%s needs a password; there is no terminal to ask at, so set %s or --password-file", f.User, envPassword)
	case err == nil && text == "":
		return "", f.bad("user", "the password of %s is empty", f.User)
	}
	return text, err
}

// Ask asks for a secret on the terminal, without echo; ok is false if there is none. An
// interrupt puts the echo back, and ends the process.
func (f *Flags) Ask(question string) (secret string, ok bool, err error) {
	file, ok := f.Stdin.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return "", false, nil
	}
	state, err := term.GetState(int(file.Fd()))
	if err != nil {
		return "", true, err
	}
	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	asked := context.AfterFunc(interrupted, func() {
		_ = term.Restore(int(file.Fd()), state)
		os.Exit(exitInterrupted)
	})
	defer asked()
	fmt.Fprint(f.Stderr, question)
	text, err := term.ReadPassword(int(file.Fd()))
	fmt.Fprintln(f.Stderr)
	if err != nil {
		return "", true, fmt.Errorf("read the password: %w", err)
	}
	return string(text), true, nil
}

// exitInterrupted is a shell's code for a program that Ctrl-C ended.
const exitInterrupted = 130

// ReadSecret reads a file with a password or tokens, without the line break at its
// end. It refuses a file that is empty, or that every user of the machine can read or
// change.
func ReadSecret(path string) (string, error) {
	i, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if mode := i.Mode().Perm(); mode&0o006 != 0 && runtime.GOOS != "windows" {
		return "", fmt.Errorf("%s can be read or changed by every user (mode %#o): chmod 600 %s", path, mode, path)
	}
	text, err := os.ReadFile(path)
	secret := strings.TrimRight(string(text), "\r\n")
	if err == nil && strings.TrimSpace(secret) == "" {
		err = fmt.Errorf("%s is empty", path)
	}
	return secret, err
}

// unreadable blames a flag for a file that cannot be read.
func (f *Flags) unreadable(name string, err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return f.bad(name, "cannot read %s: %v", path.Path, path.Err)
	}
	return f.bad(name, "%v", err)
}
