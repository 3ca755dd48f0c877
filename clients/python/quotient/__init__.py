# Permits from quotad for Python 3.9 and later, with the standard library only.
#
#     quotad = quotient.Client()
#     quotad.acquire("payments/charge", timeout=1)  # or raises quotient.Limited
#
#     with quotad.acquire("payments/charge", 100, timeout=1, partial=True) as permits:
#         while permits.take():  # costs no call
#             charge()
#
# A client may be used by several threads, and after a fork. Times are in seconds.

import contextlib
import http.client
import json
import os
import pathlib
import re
import socket
import ssl
import stat
import threading
import time


class Limited(Exception):
    """No permit in time. retry_after is the time until there may be one."""

    def __init__(self, detail, retry_after=0):  # pickle passes the detail only, and sets the time as it sets every attribute
        super().__init__(detail)
        self.retry_after = retry_after


class Unavailable(Limited):
    """No quotad answers. It is raised at once if there is no socket at the path, and was none
    before, and by settle; otherwise after the timeout, as quotad may be restarting."""


class Refused(Exception):
    """A call that would fail again, such as one with a wrong argument or certificate, or by a user who may not use the socket."""


class NoLimit(Refused):
    """The provider has no limit, or none by key: nobody has set it yet, or etcd has lost it. Once an operator
    has set it the same call succeeds."""


def now():
    """A clock that goes on while the machine sleeps, as macOS's monotonic one does."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


FOREVER = 1e9  # seconds, which may be added; 10**400 may not


def deadline_of(wants, timeout):
    """Returns until when a call may wait, by now. Raises Refused for what no body can say."""
    for w in wants:
        if isinstance(w, str) or len(w) not in (2, 3):
            raise Refused(f"{w!r} is no want: pass a list of (provider, permits) or (provider, permits, key)")
    if not isinstance(timeout, (int, float)) or timeout != timeout:
        raise Refused(f"timeout is {timeout!r}: must be a number of seconds; 0 does not wait")
    return now() + max(0, min(timeout, FOREVER))


def refuse_count(name, n):
    """Raises Refused for what is no number of things."""
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise Refused(f"{name} is {n!r}: must be a whole number from 1")


def number(n):
    """Returns a number as JSON has it, or the name of what JSON has not, such as nan: quotad refuses that, and names the
    argument and its bounds."""
    return n if n is None or isinstance(n, int) or isinstance(n, float) and n - n == 0 else str(n)


def text_of(body):
    """Returns a body as text. What JSON has no kind for, such as bytes, is an object there: quotad refuses it by name."""
    return json.dumps(body, default=lambda _: {})


def body_of(wants, timeout, class_, label, partial, settle_within):
    """Returns the body of a call. Wants are (provider, permits) or (provider, permits, key)."""
    all = [{"provider": p, "permits": number(n), "key": key[0] if key else ""} for p, n, *key in wants]
    body = {"max_wait": timeout, "class": class_, "label": label, **(all[0] if len(all) == 1 else {"wants": all})}
    if partial:
        body["partial"] = True
    if settle_within is not None:
        body["settle_within"] = number(settle_within)
    return body


def costs_of(used):
    """Returns the body of a settlement."""
    return {"used": [number(n) for n in used]}


NO_ANSWER = 0  # in place of a status
ANSWERED = set()  # addresses at which a quotad has answered: if it does not, it restarts


def refusal(status, answer, none=Refused):
    """Returns the error that an answer means, whatever was called: Limited, as others may get what this call did
    not, Unavailable, or Refused. none is what 404 means."""
    detail = answer.get("detail", answer)
    if status == NO_ANSWER and not answer.get("wrong"):
        return Unavailable(detail, 1)  # a daemon takes longer to start than the next try here
    if status in (429, 503):
        return Limited(detail, answer.get("retry_after", 0))
    return (none if status == 404 else Refused)(detail)


def again_in(status, answer, sent, deadline, first):
    """Returns after how long to ask for permits again; None if they are there. Raises Refused, Limited or
    Unavailable. first says that this is the first answer."""
    if status == 200:
        took, good = now() - sent, answer["expires_in"]
        if took < good:
            return None
        if first:  # their window has ended, and the next one may have permits
            return 0
        status, answer = 503, {"detail": too_late(took, good)}
    error, retry, left = refusal(status, answer, NoLimit), answer.get("retry_after", 0), deadline - now()
    if status == 503 and retry <= 1:  # nobody knows when, as while the provider is paused: ask a last time at the end
        retry = min(retry, left)
    if not isinstance(error, Limited) or answer.get("absent") or not 0 <= retry <= left:
        raise error
    return retry


def too_late(took, good):
    """Says that an answer took so many seconds, and that its permits were good for fewer."""
    return (f"quotad's answer took {took:.3g} s, and its permits were good for {good:.3g} s: no call was made by them. "
            "Ask again; if this repeats, find what slows quotad or this program down")


def unanswered(address, error, tls, silent):
    """Returns what stands for the answer of a quotad that does not answer, after an error. silent says that
    it has accepted the connection, and the time is over."""
    if silent:
        return {"detail": f"quotad at {address} accepts connections, but does not answer: see its log, or restart it", "retry_after": 0.05}
    if isinstance(error, ssl.SSLError) and not isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return {"detail": mistrust(address, error), "wrong": True}
    if isinstance(error, PermissionError) and not tls:
        return {"detail": denied(address), "wrong": address not in ANSWERED, "retry_after": 0.05}
    cause = "it closed the connection" if isinstance(error, EOFError) else getattr(error, "strerror", None) or str(error) or "it timed out"  # asyncio's TimeoutError is empty
    absent = address not in ANSWERED and isinstance(error, (FileNotFoundError, NotADirectoryError))
    remedy = "start it with --listen, or pass its address" if tls else "start it, or pass Client(path)"
    if address in ANSWERED:
        remedy = "it answered before: see whether it runs, and its log"
    return {"detail": f"no quotad at {address} ({cause}): {remedy}", "retry_after": 0.05, "absent": absent}


def denied(address):
    """Says who may use the socket, which this user may not, and what to change: time does not heal it."""
    import grp  # as on Windows there is none, and no socket
    import pwd

    def name(of, number):
        try:
            return of(number)[0]
        except KeyError:  # a container has few names
            return str(number)

    user, group = name(pwd.getpwuid, os.geteuid()), None
    folder = next((f for f in reversed(pathlib.Path(address).absolute().parents) if not os.access(f, os.X_OK)), None)
    with contextlib.suppress(OSError):
        of = os.stat(folder or address)
        group = of.st_gid
        if folder and (group == 0 or not of.st_mode & stat.S_IXGRP):  # else a member of its group may enter it
            return f"the user {user} may not enter {folder}, in which quotad's socket {address} is: give it a group of that user, and mode 0750"
    remedy = "add it to the group of the socket" + ("" if group is None else ", " + name(grp.getgrgid, group)) + ", and start this program again"
    if group == 0:  # whoever joins that may do more than use the socket
        remedy = "start quotad with --group, and a group of that user"
    return f"the user {user} may not use quotad's socket {address}: {remedy}"


def mistrust(address, error):
    """Says why TLS failed, and what to change: time does not heal it."""
    host, said = host_of(address)[0], getattr(error, "verify_message", None) or (error.reason or str(error)).lower().replace("_", " ")
    kind = {62: "DNS", 64: "IP"}.get(getattr(error, "verify_code", None))  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
    if kind:
        return f"the certificate of quotad at {address} does not name {host}: issue its --tls-cert with subjectAltName={kind}:{host}, or pass an address that it names"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of quotad at {address} is not valid here ({said}): load the authority of its --tls-cert (cafile), or issue that anew if it has expired"
    if "protocol version" in said:
        return f"quotad at {address} speaks TLS 1.3 only ({said}): run a Python that has it, as ssl.HAS_TLSv1_3 says, and let tls.maximum_version allow it"
    if "alert" in said:
        return f"quotad at {address} takes no connection without a certificate that its --tls-client-ca has issued ({said}): load that one into tls (load_cert_chain)"
    return f"no TLS at {address} ({said}): pass the address of quotad's --listen"


def host_of(address):
    """Returns the host and the port of an address for TLS."""
    host, port = address.rsplit(":", 1)
    return host.strip("[]"), int(port)


LONGEST = 105  # bytes of a path at which quotad serves


def check(address, tls):
    """Returns an address as text. Raises Refused for one that cannot be what it is taken for."""
    if isinstance(address, os.PathLike):
        address = os.fspath(address)
    if not isinstance(address, str) or not address:
        raise Refused(f"the address is {address!r}: must be the path of quotad's socket, or host:port with the argument tls")
    if not isinstance(tls, (ssl.SSLContext, type(None))):
        raise Refused(f"tls is a {type(tls).__name__}: must be an ssl.SSLContext that has a certificate of this client, or None")
    is_port = re.fullmatch(r"[^/]+:[0-9]+", address)
    if tls and not is_port:
        raise Refused(f"the address is {address}: with tls it is host:port, as quotad's --listen, such as 127.0.0.1:8787")
    if not tls and (is_port or "://" in address):
        raise Refused(f"the address is {address}: without tls it is the path of a socket; host:port needs the argument tls")
    if not tls and len(os.fsencode(address)) > LONGEST:
        raise Refused(f"the address is {address}: it has {len(os.fsencode(address))} bytes, and the path of a socket has at most {LONGEST}")
    return address


class Client(threading.local):  # a connection for each thread
    """The address is the path of quotad's socket. With tls, an ssl.SSLContext that has a
    certificate of this client, it is that of --listen, such as 127.0.0.1:8787."""

    def __init__(self, address="/run/quotad/quotad.sock", tls=None):
        self.address, self.tls, self.pid, self.connection = check(address, tls), tls, None, None

    def acquire(self, provider, permits=1, timeout=0, class_="default", label="", key="", partial=False, settle_within=None):
        """Returns Permits, or raises Limited, Unavailable or Refused. A key, such as an account, has limits of its own;
        a label, such as a job, is for operators to see.
        With partial they are at most so many, at least 1. With settle_within, in seconds, their
        cost can be settled until then. Without either, none can be given back."""
        return Permits(*self.grant([(provider, permits, key)], timeout, class_, label, partial, settle_within), settle_within is not None)

    def acquire_all(self, wants, timeout=0, class_="default", label="", settle_within=None):
        """Takes permits of several providers, all or none: each of wants is (provider, permits)
        or (provider, permits, key)."""
        return Granted(*self.grant(wants, timeout, class_, label, False, settle_within))

    def grant(self, wants, timeout, class_, label, partial, settle_within):
        wants, first = list(wants), True
        deadline = deadline_of(wants, timeout)
        while True:
            sent = now()
            wait = max(0, min(60, deadline - sent))
            status, answer = self.send("/v1/acquire", body_of(wants, wait, class_, label, partial, settle_within), wait)
            retry = again_in(status, answer, sent, deadline, first)
            if retry is None:
                return self, answer, sent
            first = False
            time.sleep(retry)

    def send(self, path, body=None, wait=0):
        """Sends a POST, or a DELETE without a body. Returns the status and the body of the answer, NO_ANSWER if there is none within wait and 10 s."""
        for connect in self.pid != os.getpid() or not self.connection.sock, True:  # quotad closes connections without calls
            accepted = not connect
            try:
                if connect:
                    self.connect()
                    accepted = True
                self.connection.sock.settimeout(wait + 10)
                text = (None, {}) if body is None else (text_of(body), {"Content-Type": "application/json"})
                with contextlib.suppress(ConnectionError):  # if quotad has refused the connection, it has said why, and closed it
                    self.connection.request("DELETE" if body is None else "POST", path, *text)
                answer = self.connection.getresponse()
                said = json.loads(answer.read())
                ANSWERED.add(self.address)
                return answer.status, said
            except (OSError, ValueError, http.client.HTTPException) as e:
                self.connection.close()
                late = isinstance(e, socket.timeout)
                problem = unanswered(self.address, e, self.tls, accepted and late)
                if late:
                    break
        return NO_ANSWER, problem

    def close(self):
        """Closes the connection of this thread. Its next call has a new one."""
        if self.connection:
            self.connection.close()

    def connect(self):
        self.connection, self.pid = http.client.HTTPConnection("quotad"), os.getpid()
        self.connection.auto_open = False
        if self.tls:
            at = host_of(self.address)
            self.connection.sock = self.tls.wrap_socket(socket.create_connection(at, 10), server_hostname=at[0])
            return
        self.connection.sock = socket.socket(socket.AF_UNIX)
        self.connection.sock.settimeout(10)
        self.connection.sock.connect(self.address)


# What an answer to settle means for the ID: it is kept if nothing was settled, so that the cost can be corrected.
SETTLED = 200, 409, 422, NO_ANSWER  # 409 and 422 have settled a part; without an answer nobody knows
STANDS = "the reservation stands as the cost, unless quotad settled it and could not say so"


class Granted(contextlib.AbstractContextManager):
    """What a call got. It may be used by several threads, and by no forked process. Under a limit in flight
    the call counts until close, which leaving a with block is too."""

    def __init__(self, client, answer, sent):
        self.client, self.id, self.pid = client, answer.get("id"), os.getpid()
        self.named = self.id is not None  # without an ID afterwards, they are settled, given back or ended
        self.gone = "there is no ID to settle by: ask with settle_within"  # why there is no ID
        if self.named:
            self.gone = "these permits were settled before, or given back or ended by close: settle once, and before close"
        self.end = sent + answer["expires_in"]
        self.over = sent + answer["ends_in"] if "ends_in" in answer else None
        self.until, self.lock = answer["until"], threading.Lock()

    @property
    def ends_in(self):
        """The seconds from now within which the call must be over, under a limit in flight: then it counts no
        more. Under other limits it is None."""
        return None if self.over is None else max(0.0, self.over - now())

    def settle(self, *used):
        """States what the calls cost, one number for each want, once: less gives permits back,
        0 gives all back, and more is a debt. It needs settle_within, or partial. Raises Refused if a number is wrong:
        then settle again with the right ones; or if the time for that is over, and Unavailable if no
        quotad answers: then the reservation stands as the cost."""
        of = self.begin_settling()
        self.end_settling(of, *self.client.send(f"/v1/permits/{of}/settle", costs_of(used)))

    def begin_settling(self):
        """Takes the ID, as a cost is settled once, or raises Refused."""
        with self.lock:
            of, self.id = self.id, None
        if of is None:
            raise Refused(self.gone)
        return of

    def end_settling(self, of, status, answer):
        """Puts the ID back if nothing was settled, and raises the error that an answer means."""
        if status not in SETTLED:
            self.id = of
        if status == NO_ANSWER:
            self.gone = f"quotad did not answer when these permits were settled: {STANDS}"
            answer["detail"] += f"; {STANDS}"
        if status != 200:
            raise refusal(status, answer)

    def close(self):
        """Ends the calls of limits in flight. Nothing else comes back: without settle the reservation stands as the
        cost. Settle before."""
        if self.pid != os.getpid():
            return
        with self.lock:
            of, self.id = self.id, None
        if of:
            self.client.send(f"/v1/calls/{of}")  # without an answer it ends by itself

    def __exit__(self, *_):
        self.close()


class Permits(Granted):
    """Permits of one provider, or of a key of it. until is the end of their window, as text."""

    def __init__(self, client, answer, sent, settles):
        super().__init__(client, answer, sent)
        self.settles = settles  # their cost may be known only afterwards
        self.permits, self.used = answer["permits"], 0

    def take(self, permits=1):
        """Uses permits; False if too few are left, they are settled, or their window is over. Raises Refused for what
        is no number of permits."""
        refuse_count("permits", permits)
        if self.pid != os.getpid():  # the lock may be that of a thread which is not here
            return False
        with self.lock:
            if self.named and self.id is None or permits > self.permits - self.used or now() >= self.end:
                return False
            self.used += permits
            return True

    def close(self):
        """Gives back what take has not used, while the window of the permits lasts: always with partial; with
        settle_within if take has used some, and if not, the reservation stands as the cost; and nothing without
        either, or after settle. Under a limit in flight it ends all calls. Settle before."""
        if self.pid != os.getpid():
            return
        used = self.end_taking()
        if used is not None:
            with contextlib.suppress(Limited, Refused):  # the rest is lost
                self.settle(used)
        elif self.over is not None or self.settles:  # the ID of a batch ends soon
            super().close()

    def end_taking(self):
        """Has take use no more. Returns the cost for close to settle, None if it settles none."""
        with self.lock:
            used, self.used = self.used, self.permits
        known = self.over is None and (used > 0 or not self.settles)
        return used if self.id and known and used < self.permits and now() < self.end else None
