package etcdflags

import (
	"errors"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/term"
)

// prompt asks for the password on a terminal, without echo.
func (f *Flags) prompt() (string, error) {
	text, ok, err := f.Ask("Password of etcd user " + f.User + ": ")
	switch {
	case !ok:
		return "", f.bad("user", "%s needs a password; there is no terminal to ask at, so set %s or --password-file", f.User, envPassword)
	case err != nil:
		return "", err
	case text == "":
		return "", f.bad("user", "the password of %s is empty", f.User)
	}
	return text, nil
}

// Ask asks for a secret on the terminal, without echo; ok is false if there is
// none.
func (f *Flags) Ask(question string) (secret string, ok bool, err error) {
	file, ok := f.Stdin.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return "", false, nil
	}
	fmt.Fprint(f.Stderr, question)
	text, err := readSilently(file)
	fmt.Fprintln(f.Stderr)
	if err != nil {
		return "", true, fmt.Errorf("read the password: %w", err)
	}
	return string(text), true, nil
}

// readSilently reads a line without echo. A user who interrupts it would
// otherwise be left with a shell that does not echo either, so the terminal is
// put back before that.
func readSilently(file *os.File) ([]byte, error) {
	state, err := term.GetState(int(file.Fd()))
	if err != nil {
		return nil, err
	}
	interrupt := make(chan os.Signal, 1)
	signal.Notify(interrupt, os.Interrupt)
	defer signal.Stop(interrupt)
	type line struct {
		text []byte
		err  error
	}
	read := make(chan line, 1)
	go func() { // ends with the line, or with the process
		text, err := term.ReadPassword(int(file.Fd()))
		read <- line{text, err}
	}()
	select {
	case l := <-read:
		return l.text, l.err
	case <-interrupt:
		return nil, errors.Join(errors.New("interrupted"), term.Restore(int(file.Fd()), state))
	}
}
