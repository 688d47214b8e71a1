# A preloader, or the workers of one, in the hands of an attacker. It takes the place of forkyard-php.
import array, ctypes, errno, json, mmap, os, random, signal, socket, sys, time, traceback

KIND = os.environ["HOSTILE"]
DIRECTORY = os.environ["DIRECTORY"]
CLONE, CLONE_PARENT = (56, 0x8000) if os.uname().machine == "x86_64" else (220, 0x8000)
master = socket.socket(fileno=3)
master.setblocking(True)
random.seed(KIND)
buffered, groups = b"", []


def receive():
    global buffered
    while b"\n" not in buffered:
        data, control, _, _ = master.recvmsg(1 << 16, socket.CMSG_SPACE(64 * 4))
        if not data:
            os._exit(0)
        for level, kind, content in control:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds = array.array("i")
                fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
                groups.append(list(fds))
        buffered += data
    line, buffered = buffered.split(b"\n", 1)
    return json.loads(line), groups.pop(0) if groups else []


def send(data):
    while data:
        data = data[master.send(data):]


def answer(**what):
    send(json.dumps(what).encode() + b"\n")


def told(name):
    with open(os.path.join(DIRECTORY, name)) as file:
        return int(file.read())


def sibling():
    return ctypes.CDLL(None).syscall(CLONE, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)


begin, kit = receive()
uid = begin["kit"]["identity"]["uid"]
listener, queue_out, queue_in, child_accept, messages, board, readable = kit
parent = os.getppid()
os.setgroups([])
os.setgid(uid)
os.setuid(uid)


def forever():
    while True:
        time.sleep(60)


def lies():
    """Other processes' pids as those of new workers."""
    own = os.getpid()
    child = os.fork()
    while child == 0 and os.getppid() == own:
        time.sleep(0.05)
    if child == 0:
        os._exit(0)
    with open(os.path.join(DIRECTORY, "child"), "w") as file:
        file.write(str(child))
    names = [told("victim"), told("orphan"), parent, 1, 0, -1, own, 2**31 - 1]
    # Once: what was believed the first time is no new child the second.
    command, _ = receive()
    answer(result="ok", worker=command["worker"], pid=child)
    while True:
        command, _ = receive()
        answer(result="ok", worker=command["worker"], pid=names[command["worker"] % len(names)])


def unasked():
    """Workers that nobody asked for, forks and failures."""
    for number in range(2000):
        answer(result="ok", worker=number, pid=told("victim"))
        answer(result="error", worker=random.getrandbits(64), message="x" * 1000)
        answer(result="ready", version="8.2")
    forever()


def descriptors():
    """Descriptors with every answer. The kernel refuses them, or the master ends this process."""
    null = os.open("/dev/null", os.O_RDONLY)
    open(os.path.join(DIRECTORY, "sent"), "w").close()
    for number in range(200):
        line = json.dumps({"result": "ready", "version": "8.2"}).encode() + b"\n"
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [null] * 200))]
        try:
            master.sendmsg([line], rights)
        except OSError:
            pass
    forever()


def endless():
    """A line that never ends."""
    while True:
        send(b"x" * 65536)


def noise():
    """Anything at all."""
    while True:
        send(random.randbytes(4096))


def nothing():
    """Takes commands and does not answer."""
    while True:
        receive()


def deaf():
    """Closes the channel and stays."""
    master.close()
    os.close(3) if os.path.exists("/proc/self/fd/3") else None
    forever()


def chatter():
    """Fills its standard error."""
    while True:
        os.write(2, b"chatter " * random.randrange(1, 9) + b"\n")


def leftover(page):
    """What a worker leaves behind: holds all that it was given and floods what the master reads."""
    if os.fork():
        return
    os.nice(19)
    os.setsid()
    if os.fork():
        os._exit(0)
    with open(os.path.join(DIRECTORY, "leftover-%d" % os.getpid()), "w"):
        pass
    for fd in (messages, child_accept):
        os.set_blocking(fd, False)
    # Made once: who floods has to be faster than who reads.
    flood = b"\n".join(random.randbytes(60) for _ in range(130))
    while True:
        for fd, size in ((messages, len(flood)), (child_accept, 1000)):
            try:
                os.write(fd, flood[:size] + b"\n")
            except OSError:
                pass
        page[0:4096] = random.randbytes(4096)


def give_junk():
    """What is no connection, into the queue of kept connections."""
    pair = socket.socketpair()
    junk = [os.open("/dev/null", os.O_RDWR), os.pipe()[0], pair[0].fileno(), listener, queue_in, board, 2]
    queue = socket.socket(fileno=os.dup(queue_in))
    sent = 0
    for fd in junk * 3:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
        try:
            queue.sendmsg([random.choice([b"\0", b"\1", b"xyz"])], rights, socket.MSG_DONTWAIT)
            sent += 1
        except OSError as error:
            # The queue is full, or too many descriptors are under way in it.
            if error.errno not in (errno.EAGAIN, errno.ETOOMANYREFS):
                raise
    with open(os.path.join(DIRECTORY, "junk-%d-%d" % (os.getpid(), sent)), "w"):
        pass


def worker(slot):
    page = mmap.mmap(board, 4096, offset=4096 * (1 + slot))
    try:
        os.write(child_accept, (slot | 1 << 31).to_bytes(4, sys.byteorder))
    except BlockingIOError:
        # Others flood it: what a worker says of itself is lost, and it goes on.
        pass
    leftover(page)
    give_junk()
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        page[0:4096] = random.randbytes(4096)
    os._exit(0)


def workers():
    """Keeps to the protocol; its workers do not."""
    answer(result="ready", version="8.2")
    while True:
        command, seat = receive()
        pid = sibling()
        if pid == 0:
            master.close()
            try:
                worker(command["slot"])
            except BaseException:
                # An attack that was not made would look like one that did no harm.
                with open(os.path.join(DIRECTORY, "failed-%d" % os.getpid()), "w") as file:
                    traceback.print_exc(file=file)
            finally:
                os._exit(1)
        for fd in seat:
            os.close(fd)
        answer(result="ok", worker=command["worker"], pid=pid)


if KIND in ("endless", "noise", "chatter"):
    # They never rest: what is attacked is the master, and not the processor.
    os.nice(19)
if KIND in ("lies", "nothing"):
    answer(result="ready", version="8.2")
{f.__name__: f for f in (lies, unasked, descriptors, endless, noise, nothing, deaf, chatter, workers)}[KIND]()
