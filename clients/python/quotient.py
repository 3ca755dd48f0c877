"""Permits from quotad for Python 3.9 and later, with the standard library only.

    quotad = quotient.Client()
    quotad.acquire("payments/charge", timeout=1)  # or quotient.Limited

    with quotad.lease("payments/charge", 100, timeout=1) as lease:
        while lease.take():
            charge()

A client may be used by several threads, and after a fork. Times are in seconds.
"""

import http.client
import json
import os
import socket
import threading
import time


class Limited(Exception):
    """No permit in time. retry_after is the time until there may be one."""

    def __init__(self, detail, retry_after):
        super().__init__(detail)
        self.retry_after = retry_after


class Refused(Exception):
    """A call that would fail again: an unknown provider, or a wrong argument."""


def now():
    """A clock that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Connection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("quotad", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Client:
    def __init__(self, socket="/run/quotad/quotad.sock"):
        self.socket, self.local = socket, threading.local()

    def acquire(self, provider, permits=1, timeout=0):
        """Returns the end of the window of the permits, as text, or raises Limited."""
        return self.grant("/v1/acquire", provider, permits, timeout)[0]["until"]

    def lease(self, provider, permits, timeout=0):
        """Returns a Lease of at most so many permits, at least 1, or raises Limited."""
        return Lease(self, *self.grant("/v1/leases", provider, permits, timeout))

    def grant(self, path, provider, permits, timeout):
        deadline = now() + timeout
        while True:
            sent = now()
            wait = max(0, min(60, deadline - sent))
            try:
                status, answer = self.post(path, {"provider": provider, "permits": permits, "max_wait": wait})
            except (OSError, ValueError, http.client.HTTPException) as e:  # quotad restarts
                status, answer = 503, {"detail": f"quotad at {self.socket}: {e!r}", "retry_after": 0.05}
            end = sent + answer.get("expires_in", 0)
            if status == 200 and now() < end:
                return answer, end
            if status not in (200, 429, 503):
                raise Refused(answer.get("detail", answer))
            retry = answer.get("retry_after", 0)
            if status != 200 and now() + retry > deadline:
                raise Limited(answer["detail"], retry)
            time.sleep(retry)

    def post(self, path, body):
        if getattr(self.local, "pid", None) != os.getpid():
            self.local.pid, self.local.connection = os.getpid(), Connection(self.socket, 70)
        for again in True, False:  # quotad closes connections without calls
            try:
                self.local.connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
                answer = self.local.connection.getresponse()
                return answer.status, json.loads(answer.read())
            except (OSError, ValueError, http.client.HTTPException):
                self.local.connection.close()
                if not again:
                    raise


class Lease:
    """Permits of one window. It may be used by several threads, and by no forked process."""

    def __init__(self, client, answer, end):
        self.client, self.id, self.end, self.pid = client, answer["lease"], end, os.getpid()
        self.permits, self.until, self.used, self.lock = answer["permits"], answer["until"], 0, threading.Lock()

    def take(self, permits=1):
        """Uses permits; False if too few are left, or their window is over."""
        with self.lock:
            if self.used + permits > self.permits or now() >= self.end or self.pid != os.getpid():
                return False
            self.used += permits
            return True

    def close(self):
        """Gives back what was not used, and ends the lease."""
        with self.lock:
            used, self.used = self.used, self.permits
        if used < self.permits and now() < self.end and self.pid == os.getpid():
            try:
                self.client.post(f"/v1/leases/{self.id}/return", {"used": used})
            except (OSError, ValueError, http.client.HTTPException):
                pass  # the rest is lost at the window's end

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
