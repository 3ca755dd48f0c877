package check

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	core "k8s.io/api/core/v1"
)

func composed(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{"../compose/compose.yaml"}, cli.WithProfiles([]string{"*"}))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return project
}

func TestTheComposeFileIsSafe(t *testing.T) {
	t.Parallel()
	project := composed(t)
	if len(project.Services) != 6 {
		t.Errorf("services %v", project.ServiceNames())
	}
	for name, s := range project.Services {
		if !s.ReadOnly || s.User != "65532:65532" || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s: %+v", name, s)
		}
		for _, arg := range append(slices.Clone(s.Command), s.Entrypoint...) {
			if strings.Contains(arg, "0.0.0.0") {
				t.Errorf("%s: others reach %s", name, arg)
			}
		}
	}
}

// Every program knows the flags that the chart and the compose file give it: followed by
// --help, they are no usage error.
func TestTheProgramsKnowTheirFlags(t *testing.T) {
	n := &node{t, t.TempDir(), map[string]string{}}
	n.build()
	var commands []*exec.Cmd
	for _, values := range []string{"default", "full", "external"} {
		for _, pod := range decode(t, render(t, "q", "testdata/"+values+".values.yaml")).pods {
			for _, c := range append(pod.InitContainers, pod.Containers...) {
				if c.Name == "prepare-node" {
					continue
				}
				commands = append(commands, n.command("pod", &c))
				for _, p := range []*core.Probe{c.ReadinessProbe, c.LivenessProbe} {
					if p != nil && p.Exec != nil {
						commands = append(commands, n.command("pod", &c, slices.Clone(p.Exec.Command)...))
					}
				}
			}
		}
	}
	for name, s := range composed(t).Services {
		if name != "call" {
			commands = append(commands, n.command("pod", &core.Container{Name: name, Command: s.Entrypoint, Args: s.Command}))
		}
	}
	for _, c := range commands {
		c.Args = append(c.Args, "--help")
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v: %v: %s", c.Args, err, out)
		}
	}
	if len(commands) < 25 {
		t.Errorf("%d commands", len(commands))
	}
}
