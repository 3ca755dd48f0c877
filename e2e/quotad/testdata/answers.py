"""Checks how the client takes refusals, forks and a restart: answers.py SOCKET."""

import os
import signal
import sys

import quotient

quotad = quotient.Client(sys.argv[1])
try:
    while quotad.acquire("few"):
        pass
except quotient.Limited as e:
    assert 0 < e.retry_after <= 60 and "quotad at" not in str(e), (e, e.retry_after)
quotad.acquire("keyed", key="python", timeout=60)
try:
    while quotad.acquire("keyed", key="python"):
        pass
except quotient.Limited as e:
    assert 'key "python"' in str(e), e
assert quotad.lease("keyed", 9, key="other of python", timeout=60).permits == 2
for provider, permits, reason in ("few", 1000, "split the call"), ("unknown", 1, "unknown provider"):
    try:
        quotad.acquire(provider, permits, timeout=60)
        sys.exit(f"{permits} permits of {provider}")
    except quotient.Refused as e:
        assert reason in str(e), e
lease = quotad.lease("p", 10, timeout=5)
lease.lock.acquire()  # as another thread does that takes a permit at this moment
pid = os.fork()
lease.lock.release() if pid else signal.alarm(10)
if pid == 0:
    quotad.acquire("p", timeout=5)
    lease.close()
    os._exit(1 if lease.take() else 0)
assert os.waitpid(pid, 0)[1] == 0
quotad.acquire("p", timeout=5)

print("quotad may be restarted", flush=True)
sys.stdin.readline()
lease.close()
assert not lease.take()
quotad.acquire("p", timeout=60)
