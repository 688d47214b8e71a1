"""Becomes a program for which the kernel is as one before 6.16: it knows no SO_PASSRIGHTS (83)."""
import ctypes
import os
import struct
import sys

LOAD, EQUAL, ANSWER = 0x20, 0x15, 0x06
ALLOW, NO_SUCH_OPTION = 0x7FFF0000, 0x00050000 | 92
# What the calls have as numbers, and where the low half of the third argument is.
SET, GET = {"x86_64": (54, 55), "aarch64": (208, 209)}[os.uname().machine]
PROGRAM = [
    (LOAD, 0, 0, 0),
    (EQUAL, 1, 0, SET),
    (EQUAL, 0, 3, GET),
    (LOAD, 0, 0, 32),
    (EQUAL, 0, 1, 83),
    (ANSWER, 0, 0, NO_SUCH_OPTION),
    (ANSWER, 0, 0, ALLOW),
]

code = b"".join(struct.pack("HBBI", *step) for step in PROGRAM)
steps = ctypes.create_string_buffer(code)
program = ctypes.create_string_buffer(struct.pack("HP", len(PROGRAM), ctypes.addressof(steps)))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(22, 2, program, 0, 0) != 0:
    sys.exit(os.strerror(ctypes.get_errno()))
os.execv(sys.argv[1], sys.argv[1:])
