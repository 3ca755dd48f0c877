"""Checks that calls in flight end: inflight.py SOCKET, of providers p and q with 3 inflight hold=4s."""

import asyncio
import sys
import time

import quotient
import quotient.aio

quotad = quotient.Client(sys.argv[1])


def lasts(call, began):
    """Checks for how long a call may last that was asked for at began: for its hold, and an eighth of that."""
    left = call.ends_in
    assert left <= 4.51 and left + time.monotonic() - began >= 4, left


def free(want):
    with quotad.acquire("p", 3, partial=True) as got:
        assert got.permits == want and got.take(want), (got.permits, want)


began = time.monotonic()
with quotad.acquire("p", timeout=1) as call:
    lasts(call, began)
    with quotad.acquire_all([("p", 1), ("q", 2)]) as both:
        lasts(both, began)
        free(1)
    both.close()
    free(2)
    try:
        quotad.acquire("p", 3)
        sys.exit("four are under way")
    except quotient.Limited as e:
        assert "inflight" in str(e) and e.retry_after == 1, (e, e.retry_after)
free(3)
try:
    with quotad.acquire("p"):
        raise KeyError
except KeyError:
    free(3)
settled = quotad.acquire_all([("p", 3), ("q", 3)], settle_within=10)
settled.settle(1, 1)
settled.close()
free(3)


def refused(settle, *used):
    try:
        settle(*used)
        sys.exit(f"{used} was no wrong number of costs")
    except quotient.Refused as e:
        assert "one for each want" in str(e), e


with quotad.acquire_all([("p", 1), ("q", 1)], settle_within=9) as both:  # a settlement that is refused ends no call
    refused(both.settle, 1)
    free(2)
free(3)
with quotad.acquire("p") as call:
    refused(call.settle, 1, 1)
    call.settle(1)
    free(3)


async def call_aio():
    aio = quotient.aio.Client(sys.argv[1])
    began = time.monotonic()
    async with await aio.acquire("p", timeout=1) as call:
        lasts(call, began)
        async with await aio.acquire_all([("p", 1), ("q", 1)]):
            free(1)
        free(2)
    free(3)
    async with await aio.acquire_all([("p", 1), ("q", 1)]) as both:
        try:
            await both.settle(1)
            sys.exit("one cost for two wants")
        except quotient.Refused:
            free(2)
    free(3)
    most, open = 0, 0

    async def one():
        nonlocal most, open
        async with await aio.acquire("p", timeout=30):
            open += 1
            most = max(most, open)
            await asyncio.sleep(0.05)
            open -= 1

    await asyncio.gather(*(one() for _ in range(20)))
    assert most == 3, most
    narrow = quotient.aio.Client(sys.argv[1], connections=5)

    async def two():  # more tasks than connections, all of which wait
        async with await narrow.acquire("p", timeout=30):
            await asyncio.sleep(0.01)

    began = time.monotonic()
    await asyncio.gather(*(two() for _ in range(50)))
    assert time.monotonic() - began < 4, "calls ended by their hold"
    held = await narrow.acquire("p", 3)
    waiting = [asyncio.ensure_future(narrow.acquire("p", timeout=30)) for _ in range(5)]
    await asyncio.sleep(0)
    try:
        await narrow.acquire("p", timeout=0.01)
        sys.exit("there was a sixth connection")
    except quotient.Limited as e:
        assert "5 calls are under way" in str(e), e
    await held.close()
    for call in waiting:
        await (await call).close()
    await narrow.close()


async def wait_aio():
    began = time.monotonic()
    async with await quotient.aio.Client(sys.argv[1]).acquire("p", timeout=60) as call:
        assert time.monotonic() - began > 3.9, time.monotonic() - began
        lasts(call, began)


asyncio.run(call_aio())
forgotten = quotad.acquire("p", 3)
began = time.monotonic()
with quotad.acquire("p", timeout=60) as call:
    assert time.monotonic() - began > 3.9, time.monotonic() - began
    lasts(call, began)  # from now, although the call has waited
quotad.acquire("p", 3, timeout=60)
asyncio.run(wait_aio())
assert forgotten.ends_in == 0, forgotten.ends_in
