//go:build !linux

package main

import "errors"

func succeed(string) error { return errors.New("needs Linux") }

func hasSuccessor(string) bool { return false }
