//go:build !linux

package coordinator

import (
	"errors"
	"os"
)

var errNoState = errors.New("it works on Linux only, leave it empty here")

func checkStateDir(string) error        { return errNoState }
func openOwn(string) (*os.File, error)  { return nil, errNoState }
func lockState(*os.File) error          { return errNoState }
func originOf(*os.File) (string, error) { return "", errNoState }
func hostClock() (int64, error)         { return 0, errNoState }
