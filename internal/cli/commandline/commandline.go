// Package commandline shows the flags of a command in groups, completes them in a shell, and says
// what is wrong with a flag and how to write it. The shells' scripts are cobra's.
package commandline

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Groups are the flags of a command, as its help shows them: under titles, in the order in which
// they were added.
type Groups struct {
	titles []string
	sets   []*pflag.FlagSet
}

// Add adds the flags that register defines, and returns them.
func (g *Groups) Add(title string, register func(set *pflag.FlagSet)) *pflag.FlagSet {
	set := pflag.NewFlagSet(title, pflag.ContinueOnError)
	set.SortFlags = false
	register(set)
	g.titles, g.sets = append(g.titles, title), append(g.sets, set)
	return set
}

// Set returns the flags of all groups, to parse a command line with. It prints nothing by itself.
func (g *Groups) Set(name string) *pflag.FlagSet {
	all := pflag.NewFlagSet(name, pflag.ContinueOnError)
	all.SetOutput(io.Discard)
	all.SortFlags = false
	all.Usage = func() {}
	for _, set := range g.sets {
		all.AddFlagSet(set)
	}
	return all
}

// Usages returns the groups for the help, each after an empty line.
func (g *Groups) Usages() string {
	var b strings.Builder
	for i, set := range g.sets {
		fmt.Fprintf(&b, "\n%s:\n%s", g.titles[i], set.FlagUsagesWrapped(100))
	}
	return b.String()
}

// Gone has set refuse a flag that earlier versions had, and say what to do now. Help, completion and
// suggestions leave it out.
func Gone(set *pflag.FlagSet, name, now string) {
	set.Func(name, "", func(string) error { return errors.New("it is gone: " + now) })
	_ = set.MarkHidden(name) // fails for unknown flags only
}

// Wrong returns the text of an error of parsing flags of set. It has the flag, its value and
// how to write it, or the flag that an unknown one was meant to be.
func Wrong(set *pflag.FlagSet, err error) string {
	wrong, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err.Error() + near(set, err)
	}
	remedy := errors.Unwrap(err).Error()
	switch wrong.GetFlag().Value.Type() {
	case "duration":
		remedy = "write a number with its unit, as in 250ms, 3s or 1m"
	case "int", "int64":
		remedy = "write a whole number"
	case "uint", "uint64":
		remedy = "write a whole number, not below 0"
	case "bool":
		remedy = "write true or false"
	case "float64":
		remedy = "write a number, as in 1.5"
	}
	return fmt.Sprintf("--%s %q: %s", wrong.GetFlag().Name, wrong.GetValue(), remedy)
}

// near returns "; did you mean --reason?" for an error of a flag that set lacks, if a flag
// of set has nearly that name; otherwise "".
func near(set *pflag.FlagSet, err error) string {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || len(unknown.GetSpecifiedName()) < 2 || unknown.GetSpecifiedShortnames() != "" {
		return ""
	}
	var names []string
	set.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	near := Near(unknown.GetSpecifiedName(), names)
	if len(near) == 0 {
		return ""
	}
	return "; did you mean --" + strings.Join(near, " or --") + "?"
}

// Near returns those of the names that somebody may have meant who wrote another one, sorted: as
// far away as two typing errors, or one in a short name.
func Near(wrote string, names []string) []string {
	known := &cobra.Command{SuggestionsMinimumDistance: min(2, (len(wrote)+1)/3)}
	for _, name := range names {
		known.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	near := known.SuggestionsFor(wrote)
	slices.Sort(near)
	return near
}

// Values lets a shell complete the values of cmd's own flags by their usage: a placeholder
// like `hold|stop` lists the values, one of a file or a directory stands for paths. Other
// values are not completed.
func Values(cmd *cobra.Command) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		placeholder, _ := pflag.UnquoteUsage(f)
		complete := cobra.NoFileCompletions
		switch word := strings.ToLower(placeholder); {
		case strings.Contains(word, "|"):
			complete = cobra.FixedCompletions(strings.Split(placeholder, "|"), cobra.ShellCompDirectiveNoFileComp)
		case slices.Contains([]string{"file", "path", "dir", "directory"}, word):
			return // as shells do by themselves
		}
		_ = cmd.RegisterFlagCompletionFunc(f.Name, complete) // fails where the command has one of its own
	})
}

// Complete prints a shell's script, or the values that the script asks for, if the arguments
// of a command that has only flags ask for it: "completion bash". It reports whether they do.
func Complete(name string, set *pflag.FlagSet, args []string, out io.Writer) (asked bool, err error) {
	if len(args) == 0 || !slices.Contains([]string{"completion", cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd}, args[0]) {
		return false, nil
	}
	root := &cobra.Command{
		Use: name, Args: cobra.NoArgs, SilenceErrors: true, SilenceUsage: true,
		Run: func(*cobra.Command, []string) {}, ValidArgsFunction: cobra.NoFileCompletions,
	}
	root.Flags().AddFlagSet(set)
	Values(root)
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(io.Discard)
	return true, root.Execute()
}
