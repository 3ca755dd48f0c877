"""Makes calls in flight, until it is killed: flight.py SOCKET HOST:PORT CALLERS."""

import http.client
import sys
import threading

import quotient


def work(quotad, address):
    provider = http.client.HTTPConnection(address)
    while True:
        try:
            with quotad.acquire("calls", timeout=5) as call:
                if call.ends_in > 5:  # a call takes a second at most
                    provider.request("GET", "/python")
                    provider.getresponse().read()
        except quotient.Limited:
            pass


client = quotient.Client(sys.argv[1])
for _ in range(int(sys.argv[3])):
    threading.Thread(target=work, args=(client, sys.argv[2])).start()
