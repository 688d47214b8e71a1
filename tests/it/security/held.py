"""A tenant's application that holds locks of the kernel: while a page of a file is read or written whose file system does not answer,
the kernel keeps what the call has taken. Loaded by an application's start-up file with FUSE, the directory of that file system."""
import ctypes
import mmap
import os
import time

LIBRARY = ctypes.CDLL(None, use_errno=True)
LIBRARY.mmap.restype = ctypes.c_void_p
LIBRARY.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
PAGE = mmap.PAGESIZE
GETDENTS64 = {"x86_64": 217}.get(os.uname().machine, 61)
FIXED_AND_PRIVATE = 0x32


def page(fuse):
    """The address of a page that is not in memory yet."""
    # Not through the file system, which would have it in memory then.
    with open(f"{os.path.dirname(fuse)}/source/page{os.getpid()}", "wb") as file:
        file.write(b"x" * PAGE)
    file = os.open(f"{fuse}/page{os.getpid()}", os.O_RDWR)
    return LIBRARY.mmap(None, PAGE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, file, 0)


def wait_until_stopped(fuse):
    place = os.path.dirname(fuse)
    open(f"{place}/ready{os.getpid()}", "w").close()
    os.rename(f"{place}/ready{os.getpid()}", f"{place}/ready")
    while not os.path.exists(f"{place}/stopped"):
        time.sleep(0.01)


def hold_memory(fuse):
    """Holds its own mmap_lock: dirty pages are written back when their mapping is replaced."""
    address = page(fuse)
    ctypes.memset(address, 65, PAGE)
    wait_until_stopped(fuse)
    LIBRARY.mmap(address, PAGE, mmap.PROT_READ, FIXED_AND_PRIVATE, -1, 0)


def hold_pipe(fuse, descriptor):
    """Holds the lock of a pipe, whose writer has it while it copies."""
    address = page(fuse)
    wait_until_stopped(fuse)
    LIBRARY.write(descriptor, ctypes.c_void_p(address), PAGE)


def hold_file(fuse, path):
    """Holds the lock of a file that it may write to."""
    hold_pipe(fuse, os.open(path, os.O_WRONLY | os.O_APPEND))


def hold_all_but_standard_streams():
    """Holds every pipe that this process can write to."""
    held = []
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            is_pipe = os.readlink(f"/proc/self/fd/{number}").startswith("pipe:")
            flags = int(open(f"/proc/self/fdinfo/{number}").read().split("flags:")[1].split()[0], 8)
        except OSError:
            continue
        if number > 2 and is_pipe and flags & os.O_ACCMODE == os.O_WRONLY:
            held.append(apart(hold_pipe, FUSE, number))
    if not held:
        wait_until_stopped(FUSE)
    for pid in held:
        wait_until_held(pid)


def hold_directory(fuse, path):
    """Holds the lock of a directory, which getdents64(2) has while it copies. A second process waits to write there, so that looking
    a name up waits as well."""
    address = page(fuse)
    directory = os.open(path, os.O_RDONLY)
    wait_until_stopped(fuse)
    if os.fork() == 0:
        time.sleep(0.2)
        os.open(f"{path}/new", os.O_CREAT)
    LIBRARY.syscall(GETDENTS64, directory, ctypes.c_void_p(address), PAGE)


def apart(hold, *arguments, environment=True):
    """Has a process of its own hold something, in a session of its own, whose parent ends. Says its number."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        child = os.fork()
        if child == 0:
            hold(*arguments)
            os._exit(0)
        os.write(writer, str(child).encode())
        os._exit(0)
    os.wait()
    return int(os.read(reader, 20))


def wait_until_held(pid):
    """Until the process sleeps in the kernel."""
    looks = 0
    while looks < 10:
        sleeps = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] == "D"
        looks = looks + 1 if sleeps else 0
        time.sleep(0.01)
