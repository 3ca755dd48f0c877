package chart

import (
	"fmt"
	"strings"
)

// Color names a colour that differs between a light and a dark screen.
type Color int

// The colours. Those of a ramp come from Ramp.
const (
	Ink Color = iota
	Grey
	Blue
	Orange
	Green
	Red
	ramp
)

// rampLength is how many colours a ramp has: from dark blue over green to
// orange, each of another lightness than its neighbours, so that who sees no
// hues sees steps.
const rampLength = 10

// colors are the colours on a light and on a dark screen. Each keeps a contrast
// of 3 to 1 at least against its background, but for Grey areas and the ramp's
// ends, which have neighbours to stand against.
var colors = [ramp + rampLength]struct{ light, dark string }{
	Ink: {"#1f2328", "#e6edf3"}, Grey: {"#8c959f", "#7d8590"},
	Blue: {"#2f74d0", "#4184e4"}, Orange: {"#c2570c", "#f0883e"},
	Green: {"#1a7f37", "#3fb950"}, Red: {"#cf222e", "#ff7b72"},
	ramp: {"#27408f", "#3f5fc0"}, {"#2f62b3", "#4a7fd6"}, {"#2c83bd", "#4f9fdc"}, {"#2a9db0", "#4bb7cc"},
	{"#37a98c", "#52c2a4"}, {"#62b268", "#7bcb80"}, {"#93b84d", "#a8cf62"}, {"#c2b43f", "#d6c853"},
	{"#de9a35", "#eeae4a"}, {"#d97332", "#ee8a4a"},
}

// Ramp returns the i-th of n colours in a row, 0 <= i < n.
func Ramp(i, n int) Color {
	if n <= 1 {
		return ramp
	}
	return ramp + Color(i*(rampLength-1)/(n-1))
}

func (c Color) class() string {
	if c >= ramp {
		return fmt.Sprintf("r%d", int(c-ramp))
	}
	return [ramp]string{"ink", "grey", "blue", "orange", "green", "red"}[c]
}

// Style is the style sheet that drawings need: of a page that holds some, or of a
// drawing that stands alone.
func Style() string {
	var b strings.Builder
	b.WriteString(`.chart text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,Helvetica,Arial,sans-serif;fill:#59636e}` +
		`.chart .title{font-size:15px;font-weight:600;fill:#1f2328}.chart .name{fill:#1f2328}` +
		`.chart .grid{stroke:#d1d9e0;stroke-width:1;fill:none}.chart .event{stroke:#59636e;stroke-width:1;stroke-dasharray:3 3;fill:none}` +
		`.chart .hint{fill:#000;fill-opacity:0}.chart .hint:hover{fill-opacity:.08}` +
		`.chart .l{fill:none;stroke-width:2;stroke-linejoin:round}.chart .thin{stroke-width:1}`)
	paint := func(screen func(Color) string) {
		for c := range Color(len(colors)) {
			fmt.Fprintf(&b, ".chart .l.%[1]s{stroke:%[2]s}.chart .a.%[1]s{fill:%[2]s}", c.class(), screen(c))
		}
	}
	paint(func(c Color) string { return colors[c].light })
	b.WriteString(`@media(prefers-color-scheme:dark){.chart text{fill:#9198a1}.chart .title,.chart .name{fill:#e6edf3}` +
		`.chart .grid{stroke:#3d444d}.chart .event{stroke:#9198a1}.chart .hint{fill:#fff}`)
	paint(func(c Color) string { return colors[c].dark })
	b.WriteString("}")
	return b.String()
}
