package chart

// Chart is what is to be drawn. Points beyond the axes are drawn at their edge.
type Chart struct {
	// Title stands above the chart; empty: none is drawn.
	Title string
	// Says describes the chart to who cannot see it.
	Says   string
	X, Y   Axis
	Series []Series // drawn in order: the last one is on top
	Events []Event  // in order of X
	Hints  []Hint
}

// Axis is one of a chart's two axes.
type Axis struct {
	Label    string
	Min, Max float64 // Min < Max; with Log, 0 < Min
	Log      bool    // by powers of ten
	// Ticks are the marked values; nil: round ones are chosen.
	Ticks []Tick
	// Text writes a tick that was chosen; nil: Short.
	Text func(float64) string
}

// Tick is a marked value of an axis.
type Tick struct {
	At   float64
	Text string
}

// Series is one quantity.
type Series struct {
	Name  string // in the legend; empty: not there
	Color Color
	// Points are in order of X.
	Points []Point
	// Step lets each value last until the next point's X; otherwise straight
	// lines join them.
	Step bool
	// Fill paints what lies between Base and Y; otherwise a line is drawn at Y.
	Fill bool
	// Thin draws a thinner line.
	Thin bool
}

// Point is one value. Base matters where a series is filled.
type Point struct{ X, Y, Base float64 }

// Event is an instant to be marked.
type Event struct {
	X    float64
	Text string
}

// Hint is what a pointing device is told between two values of X.
type Hint struct {
	From, To float64
	Text     string
}

// Stack puts series on top of each other, the first one lowest. All must have
// points at the same values of X.
func Stack(series []Series) []Series {
	stacked := make([]Series, len(series))
	var top []float64
	for i, s := range series {
		if top == nil {
			top = make([]float64, len(s.Points))
		}
		points := make([]Point, len(s.Points))
		for j, p := range s.Points {
			points[j] = Point{X: p.X, Y: top[j] + p.Y, Base: top[j]}
			top[j] = points[j].Y
		}
		s.Points = points
		stacked[i] = s
	}
	return stacked
}
