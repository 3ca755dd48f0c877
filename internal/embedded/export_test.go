package embedded

// Dir returns the folder of a cluster's data.
func Dir(c *Cluster) string { return c.dir }

// ProcessName returns the name of the process that runs a member; it ends in the process's ID.
func ProcessName(c *Cluster, member int) string { return c.members[member].runs.(*process).Name }
