package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/listen"
	localsocket "github.com/quotient-limiter/quotient/internal/cli/socket"
)

// probeTime bounds a probe.
const probeTime = 5 * time.Second

// ask asks the quotad that serves a socket whether it is well: for containers, which have
// no other program that could. The error has the start of its answer.
func ask(socket, path string) error {
	answer, err := listen.Client(socket, probeTime).Get("http://quotad/" + path)
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("--probe: this user may not use --socket %s: %s", socket, localsocket.Joining(socket))
	}
	if err != nil {
		return fmt.Errorf("--probe asks at --socket %s only, where no quotad answers: %w", socket, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1024))
		return fmt.Errorf("--probe: %s: %s", answer.Status, text)
	}
	return nil
}
