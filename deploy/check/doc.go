// Package check tests the Helm chart and the compose file of this folder's neighbours:
// what they render, that Kubernetes and compose know every field of it, and that the
// programs run by it. The variable HELM names a helm; `.ci/run deploy` builds one.
package check
