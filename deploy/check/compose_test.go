package check

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	core "k8s.io/api/core/v1"

	"github.com/quotient-limiter/quotient/internal/testkit/await"
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

// container returns a service as Kubernetes would have it.
func container(s types.ServiceConfig) *core.Container {
	c := &core.Container{Name: s.Name, Command: s.Entrypoint, Args: s.Command}
	for name, value := range s.Environment {
		c.Env = append(c.Env, core.EnvVar{Name: name, Value: *value})
	}
	return c
}

// The real programs run by the compose file, and curl gets a permit.
func TestTheTrialRuns(t *testing.T) {
	n := newNode(t)
	services := composed(t).Services
	for _, s := range services {
		for _, v := range s.Volumes {
			if v.Type == types.VolumeTypeBind {
				text, err := os.ReadFile(v.Source)
				if err != nil {
					t.Fatal(err)
				}
				n.write(strings.Replace(v.Target, "/etc/quotient", "etc", 1), text)
			}
		}
		if b := s.Build; b != nil && b.Target != "" {
			if text, err := os.ReadFile("../../Dockerfile"); err != nil || !strings.Contains(string(text), " AS "+b.Target+"\n") {
				t.Errorf("%s: the Dockerfile has no target %s, %v", s.Name, b.Target, err)
			}
		}
	}
	const machine = "trial"
	n.start(machine, container(services["etcd"]))
	await.Until(t, "the policies are applied", func() bool { return n.command(machine, container(services["policies"])).Run() == nil })
	n.start(machine, container(services["dashboard"]))
	n.untilThere("http://" + n.address(machine+":8686"))
	n.start(machine, container(services["quotad"]))
	probe := append([]string{"quotad", "--probe=readyz"}, services["quotad"].Command...)
	await.Until(t, "quotad is ready", func() bool { return n.command(machine, &core.Container{}, probe...).Run() == nil })
	call := n.command(machine, container(services["call"]))
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Fatal(err)
	}
	call.Path = curl
	if out, err := call.CombinedOutput(); err != nil || !strings.Contains(string(out), "200 OK") {
		t.Errorf("%v: %s", err, out)
	}
}

// Every program knows the flags that the chart and the compose file give it: followed by
// --help, they are no usage error.
func TestTheProgramsKnowTheirFlags(t *testing.T) {
	n := newNode(t)
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
						commands = append(commands, n.command("pod", &c, p.Exec.Command...))
					}
				}
			}
		}
	}
	for name, s := range composed(t).Services {
		if name != "call" {
			commands = append(commands, n.command("pod", container(s)))
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
