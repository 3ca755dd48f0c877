// Package trace writes what the instances of a run learn and issue, and judges it
// afterwards by the proof of docs/proof/protocol.md, section 4. In each window W the fleet
// issues at most the smallest T*(u, W) of the views u that were newest within [B-, B+].
//
// Wrap puts a Writer between a session and its limiters: nothing else of them changes,
// and without it nothing is paid. A Writer appends lines of JSON to one file, each by
// one write. So a killed process loses at most the line that it was writing. The kinds:
//
//	trace   the first line: the version
//	open    a limiter of a provider opens; Stream numbers it in its file
//	view    a view, or the change of one revision, the first time that a limiter of this
//	        file has it; Sum is a checksum, by which the next two name it
//	reset   a limiter begins a history with a view
//	apply   a limiter applies a change
//	proof   the view that the limiter holds has all that was committed before Sent
//	plan    what a limiter may issue of each running window, and has issued; written
//	        before permits of another window can be taken
//	close   a limiter is closed: nothing more comes
//
// Killed names the files of a process that was killed. If another file ends before its
// limiters are closed, no later window is called held: nobody knows what they issued.
//
// Instants are by the clock of the machine, which stands for true time: all files of a
// run are of one machine.
//
// When a view was committed is not known exactly. It was before the first instance applied
// it, and after each proof of an instance that did not have it yet was sent. The verdict on
// a window holds for every commit time between these, or it is Unknown.
package trace
