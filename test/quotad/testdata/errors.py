"""Prints which errors calls raise: errors.py threads|tasks ADDRESS [CA [CERT KEY]]. Where MAX_TLS is set it is the newest TLS."""

import asyncio
import os
import pathlib
import ssl
import sys

import quotient
import quotient.aio

how, address, *files = sys.argv[1:]
tls = None
if files:
    tls = ssl.create_default_context(cafile=files[0])
    if files[1:]:
        tls.load_cert_chain(*files[1:])
    if "MAX_TLS" in os.environ:
        tls.maximum_version = ssl.TLSVersion[os.environ["MAX_TLS"]]
loop = asyncio.new_event_loop()


def ends(call, *args, **named):
    """Waits for a call. Returns what it does, or prints the error."""
    try:
        result = call(*args, **named)
        return loop.run_until_complete(result) if asyncio.iscoroutine(result) else result
    except (quotient.Limited, quotient.Refused) as e:
        print(f"{type(e).__name__}: {e}", flush=True)


client = ends((quotient if how == "threads" else quotient.aio).Client, address, tls)
if client is None:
    sys.exit()
if tls is None:
    of = quotient if how == "threads" else quotient.aio
    for none in None, "", pathlib.Path(address + "x" * 100):
        ends(of.Client, none)
    ends(of.Client, address, {"ca": "ca.pem"})
    if how == "tasks":
        for none in 0, -1, None:
            ends(of.Client, address, connections=none)
    client = ends(of.Client, pathlib.Path(address))
    for wrong in None, "5", float("nan"):
        ends(client.acquire, "p", timeout=wrong)
    ends(client.acquire_all, ["p", "q"])
    ends(client.acquire, "p", "5")
    for _ in range(4):  # quotad does not know the first ID, has no time for the second, and books a part of the third
        got = ends(client.acquire, "p", settle_within=60)
        batch = ends(client.acquire, "p", 2, partial=True)
        print("has permits", flush=True)
        sys.stdin.readline()
        ends(got.settle, 1)
        ends(got.settle, 1)
        ends(batch.close)
else:
    got = ends(client.acquire, "p", timeout=3600)
    if got:
        print(f"{got.permits} permit")
