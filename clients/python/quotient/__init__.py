# Permits from quotad for Python 3.9 and later, with the standard library only.
#
#     quotad = quotient.Client()
#     quotad.acquire("payments/charge", timeout=1)  # or quotient.Limited
#
#     with quotad.lease("payments/charge", 100, timeout=1) as lease:
#         while lease.take():
#             charge()
#
# A client may be used by several threads, and after a fork. Times are in seconds.

import contextlib
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


def again_in(status, answer, end, deadline):
    """Returns after how long to ask again; None if the permits are there. Raises Refused or
    Limited."""
    if status == 200 and now() < end:
        return None
    if status not in (200, 429, 503):
        raise Refused(answer.get("detail", answer))
    retry = answer.get("retry_after", 0)
    if not now() + retry <= deadline:
        raise Limited(answer.get("detail", "the answer came too late"), retry)
    return retry


class Client(threading.local):  # a connection for each thread
    def __init__(self, socket="/run/quotad/quotad.sock"):
        self.path, self.pid, self.connection = socket, None, None

    def acquire(self, provider, permits=1, timeout=0, class_="default", key=""):
        """Returns the end of the window of the permits, as text, or raises Limited.

        A key, such as an account, has limits of its own; "" is none."""
        return self.grant("/v1/acquire", provider, permits, timeout, class_, key)[0]["until"]

    def lease(self, provider, permits, timeout=0, class_="default", key=""):
        """Returns a Lease of at most so many permits, at least 1, or raises Limited."""
        return Lease(self, *self.grant("/v1/leases", provider, permits, timeout, class_, key))

    def grant(self, path, provider, permits, timeout, class_, key):
        deadline = now() + timeout
        while True:
            sent = now()
            wait = max(0, min(60, deadline - sent))
            call = {"provider": provider, "permits": permits, "max_wait": wait, "class": class_, "key": key}
            status, answer = self.post(path, call, wait)
            end = sent + answer.get("expires_in", 0)
            retry = again_in(status, answer, end, deadline)
            if retry is None:
                return answer, end
            time.sleep(retry)

    def post(self, path, body, wait=0):
        """Returns the status and the body of the answer, 503 if there is none within wait and 10 s."""
        for connect in self.pid != os.getpid() or not self.connection.sock, True:  # quotad closes connections without calls
            try:
                if connect:
                    self.connect()
                self.connection.sock.settimeout(wait + 10)
                self.connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
                answer = self.connection.getresponse()
                return answer.status, json.loads(answer.read())
            except (OSError, ValueError, http.client.HTTPException) as e:
                self.connection.close()
                problem = f"quotad at {self.path}: {e!r}"
                if isinstance(e, socket.timeout):
                    break
        return 503, {"detail": problem, "retry_after": 0.05}  # it restarts

    def connect(self):
        self.connection, self.pid = http.client.HTTPConnection("quotad"), os.getpid()
        self.connection.auto_open = False
        self.connection.sock = socket.socket(socket.AF_UNIX)
        self.connection.sock.settimeout(10)
        self.connection.sock.connect(self.path)


class Lease(contextlib.AbstractContextManager):
    """Permits of one window. It may be used by several threads, and by no forked process."""

    def __init__(self, client, answer, end):
        self.client, self.id, self.end, self.pid = client, answer["lease"], end, os.getpid()
        self.permits, self.until, self.used, self.lock = answer["permits"], answer["until"], 0, threading.Lock()

    def take(self, permits=1):
        """Uses permits; False if too few are left, or their window is over."""
        if self.pid != os.getpid():  # the lock may be that of a thread which is not here
            return False
        with self.lock:
            if not 0 < permits <= self.permits - self.used or now() >= self.end:
                return False
            self.used += permits
            return True

    def close(self):
        """Gives back what was not used, and ends the lease."""
        if self.pid != os.getpid():
            return
        with self.lock:
            used, self.used = self.used, self.permits
        if used < self.permits and now() < self.end:
            self.client.post(f"/v1/leases/{self.id}/return", {"used": used})  # or the rest is lost

    def __exit__(self, *_):
        self.close()
