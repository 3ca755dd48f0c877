// Command quota-admin is the operator's tool of Quotient: it sets and shows the
// policies of providers in etcd, their history, and the instances that obey
// them.
package main

import "os"

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv))
}
