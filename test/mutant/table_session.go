package mutant

// session are mistakes in a session: what it hears of etcd, and what it says there.
var session = Table{
	Replace("BackoffCountsAgain", "counts a pause from when its key was told last", "internal/protocol/throttle.go",
		"latest := a.At.Add(p.BackoffMax)", "latest := now.Add(p.BackoffMax)", histories),
	{Name: "BackwardsUnseen", Wrong: "takes a store that went back as usual", By: []string{histories}, Edits: []Edit{
		{"internal/session/view/line.go", "return revision < p.floor || cluster != l.cluster", "return false"},
		{"internal/session/step.go", "case l.begun && e.Cluster != l.history.Cluster():", "case false:"},
		{"internal/session/step.go", "case e.Created == e.Witness.Created:", "case true:"},
	}},
	Replace("Coalesce", "makes one view of the revisions of one answer", "internal/session/view/tracker.go",
		"n < len(rest) && rest[n].Revision == rest[0].Revision {", "n < len(rest) {", histories),
	Replace("PauseUnbounded", "obeys a pause however long it is", "internal/protocol/throttle.go",
		"a.Until.After(latest)", "a.Until.Before(a.At) && a.Until.After(latest)", histories),
	Replace("ReadWithoutPosition", "counts a read before the watch has delivered what it saw", "internal/session/view/line.go",
		"if a.revision > l.position {\n\t\t\treturn false", "if false {\n\t\t\treturn false", histories),
	Replace("GivesBackBeforeBinding", "gives back permits of a budget that its limiter may issue still", "internal/window/long.go",
		"\t\tb.purse.Taken -= n\n", "\t\tb.purse.Taken -= 0 * n\n", histories),
	{Name: "BoundWhenAnswered", Wrong: "obeys its announced end from when that is known to be written", By: []string{histories}, Edits: []Edit{
		{"internal/session/member.go", "\te.emit(Announce{e.Member, e.until})\n", ""},
		{"coordinator/leave.go", "\treturn until, nil\n", "\tp.Sink.Announce(until)\n\treturn until, nil\n"},
	}},
	Replace("CreatedIsPosition", "takes the header of the answer that a watch was created for its position", "internal/session/step.go",
		"case e.Progress:", "case e.Created, e.Progress:", histories),
	Replace("EndBySetClock", "says by the operating system's clock from when on nothing is issued", "coordinator/leave.go",
		"time.Unix(0, p.s.o.Clock.Wall()+1)", "time.Unix(0, p.s.o.Clock.Now().Wall+1)", histories),
	{Name: "ListedWhenSent", Wrong: "a history is said to begin when its listing was asked for", By: []string{histories}, Edits: []Edit{
		{"internal/session/member.go", "\tat := p.m.now.Instant\n\tif p.store != 0", "\tat := p.Requested\n\tif p.store != 0"},
		{"internal/session/member.go", "\tfailed bool ", "\tRequested clock.Instant\n\tfailed bool "},
		{"coordinator/join.go", "\t\tp.parts.Add(1)\n", "\t\tp.parts.Add(1)\n\t\tp.Requested = s.o.Clock.Now()\n"},
	}},
	{Name: "OldEvent", Wrong: "applies an event that came before", By: []string{histories}, Edits: []Edit{
		{"internal/session/view/tracker.go", "if keys[0].Revision <= t.revision {", "if keys[0].Revision <= 0 {"},
		{"internal/share/history.go", "\tif !h.Started() || c.Revision <= h.revision {", "\tif !h.Started() {"},
	}},
	{Name: "SameCountProves", Wrong: "takes an equal number of keys and an equal highest revision for a proof", By: []string{histories}, Edits: []Edit{
		{"coordinator/probe.go", "\tr, err := s.look(c, q.Witness.Key)\n", `	sent := s.o.Clock.Now()
	r, err := s.kv.Get(c, s.keys.Provider(q.Owner.Provider), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if p := q.Owner; err == nil {
		s.mu.Lock()
		var all []view.Key
		for _, kv := range r.Kvs {
			all = append(all, s.parse(p.Provider, kv, false))
		}
		if p.Follows() && p.Own().ID == q.Witness.ID && p.LooksLike(all) {
			p.Sink.Prove(sent)
		}
		s.mu.Unlock()
		r.Kvs = slices.DeleteFunc(r.Kvs, func(kv *mvccpb.KeyValue) bool { return string(kv.Key) != q.Witness.Key })
	}
`},
		{"coordinator/probe.go", "\t\"time\"\n\n", "\t\"time\"\n\t\"slices\"\n\n\t\"github.com/quotient-limiter/quotient/internal/session/view\"\n\t\"go.etcd.io/etcd/api/v3/mvccpb\"\n"},
		{"internal/session/member.go", "// IDs returns the instances", "// LooksLike compares.\nfunc (p *Member) LooksLike(keys []view.Key) bool { return p.tracker.LooksLike(keys) }\n\n// IDs returns the instances"},
		{"internal/session/view/tracker.go", "// IDs returns the incarnations", `func (t *Tracker) LooksLike(keys []Key) bool {
	n, highest := len(t.instances), int64(0)
	for _, r := range t.instances {
		highest = max(highest, r)
	}
	for _, d := range t.documents {
		if highest = max(highest, d.revision); d.revision > 0 {
			n++
		}
	}
	for i := range keys {
		if k := &keys[i]; k.Kind != Other {
			if n--; k.Revision > highest {
				return false
			}
		}
	}
	return n == 0
}

// IDs returns the incarnations`},
	}},
	{Name: "TwoWatches", Wrong: "learns of policy and instances by two streams", By: []string{histories}, Edits: []Edit{
		{"coordinator/stream.go", "\ts.answers = s.Watch(", `	if instances := folder + "p/instances/"; folder == "/quotient/v1/providers/" {
		told := make(chan clientv3.WatchResponse)
		s.answers = told
		for _, x := range []clientv3.WatchChan{
			s.Watch(s.ctx, instances, append(o, clientv3.WithPrefix(), clientv3.WithRev(s.from))...),
			s.Watch(s.ctx, instances[:len(instances)-1]+"0", append(o, clientv3.WithRange(clientv3.GetPrefixRangeEnd(folder)), clientv3.WithRev(s.from))...),
		} {
			go func() {
				for r := range x {
					select {
					case told <- r:
					case <-s.ctx.Done():
					}
				}
			}()
		}
		return
	}
	s.answers = s.Watch(`},
	}},
	Replace("KeptAliveProves", "takes an answer that a member gives by itself for a proof", "coordinator/lease.go",
		"\t\tanswer, err = way.Recv()\n", `		r.Session.mu.Lock()
		q := r.Session.mu.Question(r.o.Clock.Now())
		r.Session.mu.Unlock()
		if answer, err = way.Recv(); err == nil {
			r.step(session.ProbeAnswered{Question: q, Revision: answer.Header.Revision, Cluster: answer.Header.ClusterId, Created: q.Witness.Created})
		}
`, histories),
	Replace("RenewedAnew", "renews a lease by new streams only, which etcd refuses while it shuts down", "coordinator/lease.go",
		"{anew, func() error { return r.again(ctx) }}", "{anew}", histories),
	Replace("LoweredAtOnce", "lets operators lower the settle time below a freshness that instances still go by", "coordinator/admin/lowering.go",
		"next.Settle < need {", "false && next.Settle < need {", histories),
	Replace("ProgressProves", "takes a progress notification alone for a proof", "internal/session/step.go",
		"\t\tl.history.Progress(e.Revision)\n", `		l.history.Progress(e.Revision)
		for _, p := range Sorted(l.members) {
			p.prove(m.now.Instant)
		}
`, histories),
	Replace("SameID", "gives a process that starts the ID that its name had before", "coordinator/register.go",
		"rand.Text()", `rand.Text()[:0]+"again"`, histories),
	Replace("KeyBeforeLimiter", "the key is given up before the limiter closes", "coordinator/session.go",
		"\ts.cancel()\n\tfor _, p := range memberships {\n", `	for _, p := range memberships {
		_ = p.promiseEnd(context.Background())
	}
	s.cancel()
	for _, p := range memberships {
`, histories),
	Replace("FromThePresent", "a watch that is opened again begins at the present", "internal/session/line.go",
		"return l.history.Position() + 1\n", "return 0\n", histories),
	Replace("EndBeforeUse", "a promised end is of windows that were used", "coordinator/leave.go",
		"time.Unix(0, p.s.o.Clock.Wall()+1)", "time.Unix(0, p.s.o.Clock.Wall()-int64(time.Second))", histories),
	Replace("ListedLongAgo", "a history is said to begin before its listing", "internal/session/member.go",
		"\tat := p.m.now.Instant\n\tif p.store != 0", "\tat := p.m.now.Instant\n\tat.Mono -= 10_000_000_000\n\tif p.store != 0", histories),
	Replace("HeaderIsPosition", "the header of events counts as the watch's position", "internal/session/step.go",
		"case e.Progress:", "case !e.Created:", histories),
	Replace("RevivedStays", "an incarnation that a backup has again keeps its share", "coordinator/list.go",
		"if kv.Lease != m.Lease || string(kv.Key) == m.Key {", "if true {", histories),
	Replace("LeaseForGone", "a lease that cannot be renewed is not asked for again", "coordinator/lease.go",
		"case errors.Is(err, rpctypes.ErrLeaseNotFound):\n\t\t\treturn why\n", "case errors.Is(err, rpctypes.ErrLeaseNotFound):\n\t\t\tcontinue\n", histories),
	Replace("CompactedAgain", "a watch whose revision is gone is opened again where it was", "coordinator/watch.go",
		"errors.Is(err, rpctypes.ErrCompacted) ||", "false && errors.Is(err, rpctypes.ErrCompacted) ||", histories),
	{Name: "DatedByAnswer", Wrong: "a probe is dated at its answer", By: []string{histories}, Edits: []Edit{
		{"internal/session/step.go", "a.history.Answer(a.probe, ", "a.history.Answer(a.history.Sent(a.m.now.Instant), "},
		{"internal/session/view/line.go", "return revision < p.floor || cluster", "return cluster"},
	}},
	Replace("FirstUnasked", "the first of a fleet begins at once although another may still issue permits", "coordinator/issuers.go",
		"\t\tnone, unless = append(none, c), append(unless, op)\n", "\t\tif unless = append(unless, op); !i.Value.First {\n\t\t\tnone = append(none, c)\n\t\t}\n", histories),
	Replace("FirstAgain", "the first of a fleet waits for nothing after a gap either", "internal/session/member.go",
		"v.First = l.Value.First && l.Revision == l.Created", "v.First = l.Value.First", histories),
	Replace("IssuerGoneEarly", "an issuer key is deleted when an end is announced", "coordinator/leave.go",
		"p.writeEnd(ctx, time.Unix(0, until)); err != nil", "p.writeEnd(ctx, time.Unix(0, until), p.issuerGone()...); err != nil", histories),
}
