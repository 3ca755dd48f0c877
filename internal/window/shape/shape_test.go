package shape

import (
	"fmt"
	"time"
)

func ExampleShape_Grows() {
	s := Shape{Sliding: true, Skew: int64(100 * time.Millisecond)}
	for _, wall := range []time.Duration{0, 103 * time.Millisecond, 104 * time.Millisecond, 999 * time.Millisecond} {
		fmt.Println(time.Duration(s.Grows(time.Second, int64(wall))))
	}
	// Output:
	// 104ms
	// 104ms
	// 1.104s
	// 1.104s
}
