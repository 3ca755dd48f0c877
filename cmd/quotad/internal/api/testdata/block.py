"""Checks what comes back when a block is left, and after a settlement that is refused: block.py SOCKET, of providers p
and q with 1000 permits."""

import asyncio
import decimal
import http.client
import json
import math
import pickle
import socket
import sys
import time

import quotient
import quotient.aio


class Same:
    """A client for threads, by the words of the one for asyncio."""

    def __init__(self, of):
        self.of = of

    async def __aenter__(self):
        return Same(self.of.__enter__())

    async def __aexit__(self, *error):
        self.of.__exit__(*error)

    def __getattr__(self, name):
        if name not in ("acquire", "acquire_all", "settle", "close"):
            return getattr(self.of, name)

        async def call(*args, **named):
            got = getattr(self.of, name)(*args, **named)
            return got if got is None else Same(got)

        return call


def left(of):
    """Returns how many permits of a provider are left."""
    quotad = http.client.HTTPConnection("quotad")
    quotad.sock = socket.socket(socket.AF_UNIX)
    quotad.sock.connect(sys.argv[1])
    quotad.request("GET", f"/v1/providers/{of}")
    [limit] = json.load(quotad.getresponse())["limits"]
    quotad.close()
    return limit["left"]


async def fails(kind, text, call):
    try:
        await call
    except kind as e:
        assert text in str(e), e
    else:
        sys.exit(f"no {kind}: {text}")


async def in_a_second(play):
    """Plays again what fails because its second ended: permits of the hour are good until then, and a client
    that gets them later asks for others."""
    for _ in range(10):
        second = int(time.time())
        try:
            return await play()
        except AssertionError:
            if second == int(time.time()):
                raise
    sys.exit("no second was long enough")


async def block(quotad, options, take, settles, used, error):
    """Leaves a block of three permits: by an error, or at its end."""
    before = left("p")
    try:
        async with await quotad.acquire("p", 3, timeout=60, **options) as got:
            assert not take or got.take(take)
            if settles is not None:
                await got.settle(settles)
                assert not got.take(), "what is settled can be taken"
            if error:
                raise KeyError
    except KeyError:
        pass
    await got.close()
    assert not got.take(), "after its block"
    after = left("p")
    assert before - after == used, (options, take, settles, before - after)


async def block_of_two(quotad, options):
    """Leaves a block of two providers."""
    p, q = left("p"), left("q")
    async with await quotad.acquire_all([("p", 2), ("q", 3)], timeout=60, **options):
        pass
    assert (p - left("p"), q - left("q")) == (2, 3), options


async def blocks(quotad):
    """Leaves blocks of all kinds."""
    for options, take, settles, used in [
        ({}, 0, None, 3),
        ({}, 1, None, 3),
        ({"partial": True}, 0, None, 0),
        ({"partial": True}, 2, None, 2),
        ({"settle_within": 60}, 0, None, 3),
        ({"settle_within": 60}, 2, None, 2),
        ({"settle_within": 60}, 0, 0, 0),
        ({"settle_within": 60}, 2, 1, 1),
        ({"settle_within": 60, "partial": True}, 0, None, 3),
        ({"settle_within": 60, "partial": True}, 2, None, 2),
        ({"settle_within": 60, "partial": True}, 1, 2, 2),
    ]:
        for error in False, True:
            await in_a_second(lambda: block(quotad, options, take, settles, used, error))
    for options in {}, {"settle_within": 60}:
        await in_a_second(lambda: block_of_two(quotad, options))


async def ends(quotad):
    """Leaves more blocks than a process may have IDs."""
    for _ in range(60):
        async with await quotad.acquire("q", timeout=60, settle_within=60) as one:
            assert one.permits == 1
        async with await quotad.acquire_all([("q", 1)], timeout=60, settle_within=60):
            pass


async def settlements(quotad):
    """Settles wrongly, and then right: in the block, or after it."""
    p, q = left("p"), left("q")
    async with await quotad.acquire_all([("p", 2), ("q", 3)], timeout=60, settle_within=60) as both:
        await fails(quotient.Refused, "used has 1 numbers: must have 2", both.settle(1))
        await fails(quotient.Refused, "used is -1", both.settle(1, -1))
        await fails(quotient.Refused, "used: null given, must be a whole number from 0", both.settle(1, None))
        for wrong, given in [(decimal.Decimal(0), '"0"'), (math.nan, '"nan"'), (-math.inf, '"-inf"'), (10**30, f"{10**30}"), (b"1", """"b'1'\"""")]:
            await fails(quotient.Refused, f"used: {given} given, must be a whole number from 0 to 1000000000000", both.settle(1, wrong))
        await both.settle(1, 0)
        await fails(quotient.Refused, "were settled before", both.settle(1, 0))
    async with await quotad.acquire("p", 3, timeout=60, settle_within=60) as one:
        await fails(quotient.Refused, "used: null given, must be a whole number", one.settle(None))
        await fails(quotient.Refused, "used has 2 numbers: must have 1", one.settle(1, 2))
        assert one.take()
        await one.settle(2)
    async with await quotad.acquire("p", 3, timeout=60, settle_within=60) as late:
        pass
    await fails(quotient.Refused, "settle once, and before close", late.settle(0))
    async with await quotad.acquire("p", 3, timeout=60, partial=True) as batch:
        await fails(quotient.Refused, "used has 2 numbers: must have 1", batch.settle(1, 2))
    assert (p - left("p"), q - left("q")) == (6, 0)
    none = await quotad.acquire("p", timeout=60)
    await fails(quotient.Refused, "no ID to settle by: ask with settle_within", none.settle(1))
    assert none.take()


async def arguments(quotad):
    """Passes what is no number, or one that nobody can mean: the argument, the value and the bounds are named."""
    for wrong, given in [(math.nan, '"nan"'), (math.inf, '"inf"'), (10**19, f"{10**19}"), (10**400, f"{10**39}..."), (decimal.Decimal(1), '"1"')]:
        await fails(quotient.Refused, f"permits: {given} given, must be a whole number from 1 to 1000000000000", quotad.acquire("q", wrong))
    await fails(quotient.Refused, "wants.permits: \"inf\" given, must be a whole number from 1", quotad.acquire_all([("p", 1), ("q", math.inf)]))
    for wrong, given in [(math.nan, '"nan"'), (math.inf, '"inf"'), (10**400, f"{10**39}...")]:
        await fails(quotient.Refused, f"settle_within: {given} given, must be a number of seconds from 0 to 120", quotad.acquire("q", settle_within=wrong))
    await fails(quotient.Refused, "provider: object given, must be a text", quotad.acquire(b"q"))
    await fails(quotient.Refused, "key: object given, must be a text", quotad.acquire("q", key=b"a"))
    await fails(quotient.Refused, "'q' is no want: pass a list of (provider, permits)", quotad.acquire_all(("q", 1)))
    for timeout in 10**400, math.inf:
        await quotad.acquire("q", timeout=timeout)


async def takes(quotad):
    """Takes what is no number of permits: it is named, and nothing is lost by it."""
    before = left("p")
    async with await quotad.acquire("p", 3, timeout=60, partial=True) as batch:
        for wrong in 1.5, 2.0, 0, -1, math.nan, math.inf, True, "2", None, decimal.Decimal(1):
            try:
                sys.exit(f"take({wrong!r}) is {batch.take(wrong)}")
            except quotient.Refused as e:
                assert str(e) == f"permits is {wrong!r}: must be a whole number from 1", e
        assert batch.take() and not batch.take(3), "what was refused is taken"
    assert before - left("p") == 1, "what was not taken has not come back"


async def refusal_leaves_its_process(quotad):
    """A pool of processes hands a worker's error to its parent as pickle."""
    try:
        await quotad.acquire("q", 1000)  # some are used
    except quotient.Limited as e:
        sent = pickle.loads(pickle.dumps(e))
        assert (type(sent), str(sent), sent.retry_after) == (type(e), str(e), e.retry_after), sent
    else:
        sys.exit("no Limited")


async def main():
    for quotad in Same(quotient.Client(sys.argv[1])), quotient.aio.Client(sys.argv[1]):
        await quotad.acquire("q", timeout=60)  # it is open from now on
        await blocks(quotad)
        await in_a_second(lambda: settlements(quotad))
        await ends(quotad)
        await arguments(quotad)
        await in_a_second(lambda: takes(quotad))
        await refusal_leaves_its_process(quotad)


asyncio.run(main())
