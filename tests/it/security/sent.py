"""Sends descriptors whose last close lasts: connections that linger (SO_LINGER) to PORT, where nobody reads."""
import array
import os
import socket
import struct


def linger(peer, seconds):
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, seconds))


def lingering(port):
    peer = socket.create_connection(("127.0.0.1", port))
    peer.setblocking(False)
    try:
        while True:
            peer.send(b"x" * 65536)
    except BlockingIOError:
        pass
    peer.setblocking(True)
    linger(peer, 120)
    return peer


def send(to, port, flags=0):
    """Whether it was sent. This process has it no more."""
    sent = lingering(port)
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [sent.fileno()]))]
    try:
        to.sendmsg([b"x"], rights, flags | socket.MSG_DONTWAIT)
        is_sent = True
    except OSError:
        linger(sent, 0)
        is_sent = False
    sent.close()
    return is_sent


def send_everywhere(port):
    """Over every unix socket that this process has and that is connected. How many were sent."""
    count = 0
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            to = socket.socket(fileno=os.dup(number))
        except OSError:
            continue
        if to.family == socket.AF_UNIX and not to.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            # That of the request has a name.
            if not to.getsockname():
                count += sum(send(to, port, flags) for flags in (socket.MSG_OOB, 0))
        to.close()
    return count
