"""Checks how the client takes refusals, forks and a restart: answers.py SOCKET."""

import asyncio
import os
import signal
import ssl
import sys
import warnings

import quotient
import quotient.aio

quotad = quotient.Client(sys.argv[1])
try:
    while quotad.acquire("few"):
        pass
except quotient.Limited as e:
    assert 0 < e.retry_after <= 60 and not isinstance(e, quotient.Unavailable), (e, e.retry_after)
quotad.acquire("keyed", key="python", timeout=60)
try:
    while quotad.acquire("keyed", key="python"):
        pass
except quotient.Limited as e:
    assert 'key "python"' in str(e), e
assert quotad.acquire("keyed", 9, key="other of python", timeout=60, partial=True).permits == 2


def fails(kind, f, *args, **named):
    try:
        f(*args, **named)
    except kind as e:
        return str(e)
    sys.exit(f"no {kind}: {args}")


# All or nothing, and settled late, with a provider of 4 an hour.
def several(name, acquire, acquire_all, settle):
    wants = [(name, 1), ("p", 1)]
    all = acquire_all([(name, 4), ("p", 1, "")], timeout=60, settle_within=60)
    assert name in fails(quotient.Limited, acquire_all, wants)
    settle(all, 1, 1)
    fails(quotient.Refused, settle, all, 1, 1)
    three = acquire(name, 3, timeout=60, settle_within=60, class_="critical", label="reindex")
    fails(quotient.Limited, acquire_all, wants)
    assert "used has 2 numbers" in fails(quotient.Refused, settle, three, 0, 0)
    settle(three, 0)
    acquire_all(wants, timeout=60)
    assert "label" in fails(quotient.Refused, acquire, "p", label="\n")
    assert "label" in fails(quotient.Refused, acquire_all, wants, label="\n")
    fails(quotient.Refused, settle, acquire("p", timeout=60), 1)


several("python", quotad.acquire, quotad.acquire_all, quotient.Granted.settle)
loop = asyncio.new_event_loop()


def played(f):
    return lambda *args, **named: loop.run_until_complete(f(*args, **named))


aio = quotient.aio.Client(sys.argv[1])
several("asyncio", played(aio.acquire), played(aio.acquire_all), played(quotient.aio.Granted.settle))
for timeout in 0, 60:
    assert "another event loop" in fails(quotient.Refused, lambda: asyncio.run(aio.acquire("p", timeout=timeout)))
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    short = quotient.Client(sys.argv[1])
    for _ in range(2):  # close ends a connection, and the next call opens one
        short.acquire("p", timeout=60)
        short.close()
    del short
    assert not warned, warned[0]
if len(sys.argv) > 2:  # TLS too
    address, ca, cert, key = sys.argv[2:]
    tls = ssl.create_default_context(cafile=ca)
    tls.load_cert_chain(cert, key)
    assert quotient.Client(address, tls).acquire("p", timeout=60).permits == 1
    assert played(quotient.aio.Client(address, tls).acquire)("p", timeout=60).permits == 1
for provider, permits, reason, error in ("few", 1000, "split the call", quotient.Refused), ("unknown", 1, "no limit is set for", quotient.NoLimit):
    try:
        quotad.acquire(provider, permits, timeout=60)
        sys.exit(f"{permits} permits of {provider}")
    except quotient.Refused as e:
        assert type(e) is error and reason in str(e), e
batch = quotad.acquire("p", 10, timeout=5, partial=True)
batch.lock.acquire()  # as another thread does that takes a permit at this moment
pid = os.fork()
batch.lock.release() if pid else signal.alarm(10)
if pid == 0:
    quotad.acquire("p", timeout=5)
    batch.close()
    os._exit(1 if batch.take() else 0)
assert os.waitpid(pid, 0)[1] == 0
quotad.acquire("p", timeout=5)

print("quotad may be restarted", flush=True)
sys.stdin.readline()
batch.close()
assert not batch.take()
quotad.acquire("p", timeout=60)
