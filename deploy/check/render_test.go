package check

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/quotient-limiter/quotient/internal/testkit/golden"
	"github.com/quotient-limiter/quotient/internal/testkit/markdown"
)

const chart = "../helm/quotient"

// helm runs helm and returns what it prints.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out, problem bytes.Buffer
	cmd := exec.CommandContext(t.Context(), cmp.Or(os.Getenv("HELM"), "helm"), args...)
	dir := t.TempDir()
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+dir, "HELM_CONFIG_HOME="+dir, "HELM_DATA_HOME="+dir)
	cmd.Stdout, cmd.Stderr = &out, &problem
	err := cmd.Run()
	if err != nil && cmd.ProcessState == nil {
		t.Fatalf("%v: run .ci/run deploy, which builds helm", err)
	}
	if err != nil {
		err = fmt.Errorf("%w: %s", err, problem.String())
	}
	return out.String(), err
}

func render(t *testing.T, release, values string) string {
	t.Helper()
	out, err := helm(t, "template", release, chart, "--namespace", "quota", "--kube-version", "1.33.0", "--values", values)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// objects are what a chart renders.
type objects struct {
	pods         map[string]*core.PodSpec // by the owner's kind and name
	certificates []*certmanager.Certificate
	policies     string // the document of the ConfigMap
	made         map[string]bool
}

// decode refuses what Kubernetes' types do not know.
func decode(t *testing.T, manifests string) *objects {
	t.Helper()
	all := &objects{pods: map[string]*core.PodSpec{}, made: map[string]bool{}}
	for text := range strings.SplitSeq(manifests, "\n---\n") {
		var head struct {
			meta.TypeMeta
			Metadata meta.ObjectMeta
		}
		if err := yaml.Unmarshal([]byte(text), &head); err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		if head.Kind == "" { // a comment
			continue
		}
		name := head.Kind + "/" + head.Metadata.Name
		typed := map[string]any{
			"Service": &core.Service{}, "ServiceAccount": &core.ServiceAccount{}, "ConfigMap": &core.ConfigMap{},
			"StatefulSet": &apps.StatefulSet{}, "Deployment": &apps.Deployment{}, "DaemonSet": &apps.DaemonSet{}, "Job": &batch.Job{},
			"PodDisruptionBudget": &policy.PodDisruptionBudget{}, "NetworkPolicy": &networking.NetworkPolicy{},
			"Issuer": &certmanager.Issuer{}, "Certificate": &certmanager.Certificate{}, "PodMonitor": &monitoring.PodMonitor{},
		}[head.Kind]
		if err := yaml.UnmarshalStrict([]byte(text), typed); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if all.made[name] {
			t.Errorf("%s is there twice", name)
		}
		all.made[name] = true
		for _, problem := range validation.IsDNS1035Label(head.Metadata.Name) {
			t.Errorf("%s: %s", name, problem)
		}
		switch o := typed.(type) {
		case *apps.StatefulSet:
			all.pods[name] = &o.Spec.Template.Spec
		case *apps.Deployment:
			all.pods[name] = &o.Spec.Template.Spec
		case *apps.DaemonSet:
			all.pods[name] = &o.Spec.Template.Spec
		case *batch.Job:
			all.pods[name] = &o.Spec.Template.Spec
		case *certmanager.Certificate:
			all.certificates = append(all.certificates, o)
		case *core.ConfigMap:
			all.policies = o.Data["policies.yaml"]
		}
	}
	return all
}

func TestTheChartIsValid(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.values.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, values := range files {
		name := strings.TrimSuffix(filepath.Base(values), ".values.yaml")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if out, err := helm(t, "lint", "--strict", chart, "--values", values); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			text := render(t, "q", values)
			golden.Check(t, name+".golden.yaml", text)
			all := decode(t, text)
			if len(all.pods) < 2 {
				t.Errorf("pods of %d owners", len(all.pods))
			}
			for owner, pod := range all.pods {
				checkPod(t, owner, pod, all)
			}
		})
	}
}

// The values in deploy/helm/quotient/README.md make what it says.
func TestTheDocumentedValues(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/helm/quotient/README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := markdown.Blocks(string(text))
	i := slices.IndexFunc(blocks, func(b markdown.Block) bool { return b.Language == "yaml" })
	values := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(values, []byte(blocks[i].Text), 0o600); err != nil {
		t.Fatal(err)
	}
	all := decode(t, render(t, "quotient", values))
	for _, name := range []string{"Certificate/quotient-charge", "Deployment/quotient-dashboard", "DaemonSet/quotient-quotad", "Job/quotient-setup"} {
		if !all.made[name] {
			t.Errorf("there is no %s", name)
		}
	}
}

// checkPod checks the promises about all pods.
func checkPod(t *testing.T, owner string, pod *core.PodSpec, all *objects) {
	t.Helper()
	s := pod.SecurityContext
	if s == nil || !*s.RunAsNonRoot || *s.RunAsUser == 0 || *s.RunAsGroup == 0 || s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault ||
		*pod.AutomountServiceAccountToken || pod.HostNetwork || pod.HostIPC || pod.HostPID && !strings.HasPrefix(owner, "DaemonSet/") || !all.made["ServiceAccount/"+pod.ServiceAccountName] {
		t.Errorf("%s: %+v", owner, pod)
	}
	volumes := map[string]bool{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = true
		if v.Secret != nil && len(all.certificates) > 0 && strings.HasPrefix(v.Secret.SecretName, "q-quotient-") && !all.made["Certificate/"+v.Secret.SecretName] {
			t.Errorf("%s: no certificate makes the Secret %s", owner, v.Secret.SecretName)
		}
		if v.ConfigMap != nil && !all.made["ConfigMap/"+v.ConfigMap.Name] {
			t.Errorf("%s: there is no ConfigMap %s", owner, v.ConfigMap.Name)
		}
	}
	if strings.HasPrefix(owner, "StatefulSet/") {
		volumes["data"] = true
	}
	for _, c := range append(pod.InitContainers, pod.Containers...) {
		s := c.SecurityContext
		if *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || len(s.Capabilities.Drop) != 1 || s.Capabilities.Drop[0] != "ALL" {
			t.Errorf("%s, %s: %+v", owner, c.Name, s)
		}
		prepares := c.Name == "prepare-node" // the only one with rights
		if asRoot := s.RunAsUser != nil || s.RunAsNonRoot != nil || len(s.Capabilities.Add) > 0; asRoot != prepares {
			t.Errorf("%s, %s: %+v", owner, c.Name, s)
		}
		if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() {
			t.Errorf("%s, %s: resources %+v", owner, c.Name, c.Resources)
		}
		for _, m := range c.VolumeMounts {
			if !volumes[m.Name] {
				t.Errorf("%s, %s: there is no volume %s", owner, c.Name, m.Name)
			}
		}
	}
	for _, c := range pod.Containers {
		if !strings.HasPrefix(owner, "Job/") && c.ReadinessProbe == nil {
			t.Errorf("%s, %s: no readiness probe", owner, c.Name)
		}
	}
}

// Values that cannot work are refused, by a message that names them.
func TestWrongValuesAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ set, want string }{
		{"etcd.member=3", "'member' not allowed"},
		{"etcd.members=2", "at '/etcd/members': value must be one of 1, 3, 5"},
		{"etcd.enabled=false", "at '/etcd/endpoints': minItems: got 0, want 1"},
		{"etcd.endpoints={https://a:2379}", "at '/etcd/endpoints': maxItems: got 1, want 0"},
		{"etcd.enabled=false,etcd.endpoints={http://a:2379}", "at '/etcd/endpoints/0': 'http://a:2379' does not match pattern"},
		{"etcd.enabled=false,etcd.endpoints={https://a:2379}", "name the issuer that etcd trusts in certificates.certManager.issuer"},
		{"etcd.storage.size=8GB", "at '/etcd/storage/size': '8GB' does not match pattern"},
		{"policies.p.mode=enforce", "at '/policies/p': missing property 'limits'"},
		{"policies./p.limits=1/s", "at '/policies': additional properties '/p' not allowed"},
		{"consumers.root={p}", "consumers.root: the chart uses this name itself; choose another"},
		{"consumers.Charge={p}", "at '/consumers': additional properties 'Charge' not allowed"},
		{"consumers.charge={}", "at '/consumers/charge/0': '' does not match pattern"},
		{"quotad.user=0", "at '/quotad/user': minimum: got 0, want 1"},
		{"quotad.group=staff", "at '/quotad/group': got string, want integer"},
		{"quotad.directory=run/quotad", "at '/quotad/directory': 'run/quotad' does not match pattern"},
		{"quotad.maxSurge=0", "at '/quotad/maxSurge'"},
		{"quotad.metrics.podMonitor.enabled=true", "quotad.metrics.podMonitor needs quotad.metrics.webSecret, and its own endpoint.tlsConfig"},
		{"quotad.metrics.tlsSecret=metrics", "quotad.metrics.tlsSecret is for the metrics of quotad.metrics.webSecret"},
		{"quotad.metrics.webSecret=Metrics", "at '/quotad/metrics/webSecret': 'Metrics' does not match pattern"},
		{"certificates.certManager.issuer.name=x", "at '/certificates/certManager/issuer': properties 'kind' required"},
		{"certificates.certManager.enabled=false", "is empty: name a Secret with ca.crt, tls.crt and tls.key, or set certificates.certManager.enabled"},
		{"dashboard.tlsSecret=page", "dashboard.tlsSecret is for the page of dashboard.webSecret"},
		{"dashboard.webSecret=Web", "at '/dashboard/webSecret': 'Web' does not match pattern"},
	} {
		t.Run(c.set, func(t *testing.T) {
			t.Parallel()
			out, err := helm(t, "template", "q", chart, "--set", c.set)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("want %q, got %v\n%.300s", c.want, err, out)
			}
		})
	}
}
