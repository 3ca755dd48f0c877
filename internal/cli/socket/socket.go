// Package socket says what helps a user who may not connect to a socket.
package socket

import (
	"cmp"
	"os/user"
	"path/filepath"
	"strconv"
)

// Joining says what the user of this process is to do about quotad's socket at a path, which he may not use. The group
// that may is that of the socket or, where its folder hides it, that of the folder.
func Joining(path string) string {
	id, known := groupOf(path)
	if !known {
		id, known = groupOf(filepath.Dir(path))
	}
	name, who := strconv.Itoa(id), "USER"
	if g, err := user.LookupGroupId(name); err == nil {
		name = g.Name
	}
	if u, err := user.Current(); err == nil {
		who = cmp.Or(u.Username, who)
	}
	switch {
	case !known:
		return "run as a user of the socket's group"
	case id == 0: // whoever joins that may do more than use the socket
		return "start quotad with --group, and a group that " + who + " is in"
	}
	return "run as a user of the socket's group: usermod --append --groups " + name + " " + who
}
