"""Calls the provider with permits, until it is killed: worker.py SOCKET HOST:PORT."""

import http.client
import sys
import threading

import quotient


def call(provider, until):
    provider.request("GET", "/", headers={"Until": until, "By": "quotad"})
    provider.getresponse().read()


def work(quotad, address, batches):
    provider = http.client.HTTPConnection(address)
    while True:
        try:
            if not batches:
                call(provider, quotad.acquire("p", timeout=5).until)
                continue
            with quotad.acquire("p", 20, timeout=5, partial=True) as batch:
                for _ in range(12):  # the others are given back
                    if batch.take():
                        call(provider, batch.until)
        except quotient.Limited:
            pass


client = quotient.Client(sys.argv[1])
for n in range(4):
    threading.Thread(target=work, args=(client, sys.argv[2], n == 0)).start()
