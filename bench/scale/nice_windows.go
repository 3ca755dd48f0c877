package main

// giveWay does nothing: fleet and etcd share the processors as they come.
func giveWay() error { return nil }
