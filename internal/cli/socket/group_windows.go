package socket

// groupOf returns the group of a file: Windows has none.
func groupOf(string) (id int, enters, known bool) { return 0, false, false }
