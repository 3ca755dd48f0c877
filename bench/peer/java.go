package peer

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// BuildJava compiles the programs of bench/java in a folder, with libraries from Maven Central,
// and returns their class path. bench is the path of the module bench.
func BuildJava(ctx context.Context, bench, folder string) (classpath string, err error) {
	if _, err := exec.LookPath("mvn"); err != nil {
		return "", fmt.Errorf("%w; Debian: apt-get install maven default-jdk-headless", err)
	}
	if err := os.CopyFS(folder, os.DirFS(filepath.Join(bench, "java"))); err != nil {
		return "", err
	}
	maven := exec.CommandContext(ctx, "mvn", "-q", "-B", "compile", "dependency:build-classpath", "-Dmdep.outputFile=classpath")
	maven.Dir = folder
	if out, err := maven.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	libraries, err := os.ReadFile(filepath.Join(folder, "classpath"))
	return filepath.Join(folder, "target", "classes") + string(os.PathListSeparator) + strings.TrimSpace(string(libraries)), err
}
