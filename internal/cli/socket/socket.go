// Package socket says what helps a user who may not connect to a socket.
package socket

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
)

// Joining says what the user of this process is to do about quotad's socket at a path, which he may not use. The group
// that may is that of the socket or, where a folder hides it, that of the folder, if its group may enter it.
func Joining(path string) string {
	who := "USER"
	if u, err := user.Current(); err == nil {
		who = cmp.Or(u.Username, who)
	}
	folder := closedFolder(path)
	id, enters, known := groupOf(cmp.Or(folder, path))
	if !known {
		id, enters, known = groupOf(filepath.Dir(path))
	}
	if folder != "" && known && (id == 0 || !enters) {
		return "give " + folder + ", which " + who + " may not enter, a group of the user " + who + ", and mode 0750"
	}
	name := strconv.Itoa(id)
	if g, err := user.LookupGroupId(name); err == nil {
		name = g.Name
	}
	switch {
	case !known:
		return "run as a user of the socket's group"
	case id == 0: // whoever joins that may do more than use the socket
		return "start quotad with --group, and a group of the user " + who
	}
	return "run as a user of the socket's group: usermod --append --groups " + name + " " + who
}

// closedFolder returns the folder on the way to a path that this user may not enter; "" if there is none.
func closedFolder(path string) (folder string) {
	for at, err := filepath.Abs(path); err == nil && at != filepath.Dir(at); at = filepath.Dir(at) {
		if _, hidden := os.Stat(at); errors.Is(hidden, fs.ErrPermission) {
			folder = filepath.Dir(at)
		}
	}
	return folder
}
