# A preloader, a worker, an instance of an application pool, or a program, that lies in all that it says. It takes the place of
# forkyard-php, or is the start command of a program. LIAR in its pool's environment says which; a pool that has none gets the
# real forkyard-php. Each life goes on with the numbers of a seed (SEED, its name, how many have lived before).
import array, ctypes, fcntl, json, mmap, os, random, select, signal, socket, struct, sys, time

RIGHTS = (socket.SOL_SOCKET, socket.SCM_RIGHTS)
CLONE, CLONE_PARENT = (56, 0x8000) if os.uname().machine == "x86_64" else (220, 0x8000)
TRUTHS = {"result": "ok", "worker": 1, "pid": 2}
EDGES = [0, 1, 2, -1, 127, 255, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30, -2**63]


def begun(directory, name, seed):
    """Counts a life, and seeds it."""
    count = os.open(os.path.join(directory, "lives-" + name), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(count, b".")
    lives = os.fstat(count).st_size
    os.close(count)
    random.seed("%s/%s/%d" % (seed, name, lives))


def noise(most):
    return random.randbytes(random.randrange(most))


def some(*things):
    return random.choice(things)


def value(depth=0):
    """Any JSON value."""
    return some(
        lambda: random.choice(EDGES), lambda: None, lambda: random.random() * 1e300, lambda: "x" * random.choice([0, 1, 300, 9000]),
        lambda: "\u001b[31m\n\u2028", lambda: True, lambda: [value(depth + 1) for _ in range(3)] if depth < 3 else [],
        lambda: {"pid": value(depth + 1), "result": "ok"} if depth < 3 else {})()


class Master:
    """The master's end of a preloader's socket."""

    def __init__(self):
        self.socket = socket.socket(fileno=os.dup(3))
        self.socket.setblocking(True)
        self.buffered, self.groups = b"", []

    def receive(self):
        while b"\n" not in self.buffered:
            data, control, _, _ = self.socket.recvmsg(1 << 16, socket.CMSG_SPACE(64 * 4))
            if not data:
                os._exit(0)
            for level, kind, content in control:
                if (level, kind) == RIGHTS:
                    fds = array.array("i")
                    fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
                    self.groups.append(list(fds))
            self.buffered += data
        line, self.buffered = self.buffered.split(b"\n", 1)
        return json.loads(line), self.groups.pop(0) if self.groups else []

    def send(self, data):
        while data:
            data = data[self.socket.send(data):]

    def answer(self, **what):
        self.send(json.dumps(what).encode() + b"\n")


def told(directory, name):
    try:
        with open(os.path.join(directory, name)) as file:
            return int(file.read())
    except (OSError, ValueError):
        return 1


def sibling():
    return ctypes.CDLL(None).syscall(CLONE, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)


def leave():
    """Ends in one of the ways in which a process can."""
    if random.random() < 0.5:
        os._exit(random.choice([0, 1, 70, 127, 255]))
    number = random.choice([signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGABRT, signal.SIGUSR1, 40])
    signal.signal(number, signal.SIG_DFL) if number != signal.SIGKILL else None
    os.kill(os.getpid(), number)
    os._exit(1)


def shout(fds):
    """Something into what is read line by line: never-ending lines, other things than text, lines that look like others'."""
    words = some(noise(9000), b"x" * 70000, b"\n" * 5000, b"5[pool quiet] forged\n", b"\x1b]0;title\x07\r", b"[pool quiet] child 1 exited\n" * 50)
    for fd in fds:
        try:
            os.set_blocking(fd, False)
            os.write(fd, words)
        except OSError:
            pass


def preloader(master, kit, directory):
    """Answers as many orders as it lives, each with some lies; some of them end it."""
    quiet = [told(directory, "victim"), told(directory, "orphan"), os.getppid(), 1, 0, -1, os.getpid(), 2**31 - 1]
    null = os.open("/dev/null", os.O_RDONLY)
    stack = {"runtime": "php"}
    for name in ("current_call call_opline call_function call_info call_previous function_type function_name function_file "
                 "opline_line string_length string_text info_code info_top type_internal").split():
        stack[name] = random.choice([0, 8, 2**32 - 1])
    stack["current_call"] = random.choice([0, 2**64 - 1, 4096])

    def descriptors(order):
        line = json.dumps({"result": "ready", "version": "8.2"}).encode() + b"\n"
        fds = array.array("i", [null, kit[0], master.socket.fileno()] * random.randrange(1, 80))
        try:
            master.socket.sendmsg([line], [RIGHTS + (fds,)], socket.MSG_DONTWAIT)
        except OSError:
            pass

    def crowd(order):
        """Real children, of which one at most was asked for."""
        for _ in range(random.randrange(1, 4)):
            pid = sibling()
            if pid == 0:
                time.sleep(random.random())
                os._exit(0)
            master.answer(result="ok", worker=order.get("worker", 0), pid=pid)

    harmless = [
        lambda order: master.answer(result="ok", worker=order.get("worker", 0), pid=random.choice(quiet)),
        lambda order: master.answer(result="ok", worker=random.choice(EDGES[:12]) % 2**64, pid=random.choice(quiet)),
        lambda order: master.answer(result="error", worker=order.get("worker", 0), message="x" * random.choice([0, 5000])),
        lambda order: master.answer(result="error", message="\u001b[31mforged\n[pool quiet] forged"),
        lambda order: master.answer(result="ready", version="9" * random.randrange(3000), extensions="/etc", is_code_cached=True, stack=stack),
        lambda order: master.answer(result="scripts", scripts=["/etc/shadow", "../x"] * random.randrange(200)),
        lambda order: master.answer(result="forgotten", generation=random.choice(EDGES[:3])),
        lambda order: master.answer(result="promoted", pid=random.choice(quiet)),
        lambda order: shout([2]), lambda order: time.sleep(random.random() / 20), descriptors, crowd,
    ]
    fatal = [
        lambda order: master.send(noise(20000)), lambda order: master.send(b"[" * 60000 + b"\n"), lambda order: master.send(b"x" * 300000),
        lambda order: master.send(json.dumps(dict(TRUTHS, **{random.choice(list(TRUTHS)): value()})).encode() + b"\n"),
        lambda order: master.send(b'{"result":"ok","wor'), lambda order: leave(), lambda order: master.socket.shutdown(socket.SHUT_RDWR),
        lambda order: (master.socket.close(), os.close(3), time.sleep(2)), lambda order: time.sleep(30),
    ]
    if random.random() < 0.8:
        master.answer(result="ready", version="8.2", stack=stack)
    end = time.monotonic() + random.uniform(0.2, 1.5)
    order = {}
    while time.monotonic() < end:
        if select.select([master.socket], [], [], 0.02)[0]:
            order, fds = master.receive()
            for fd in fds:
                os.close(fd)
        for _ in range(random.randrange(20)):
            random.choice(harmless)(order)
    random.choice(fatal)(order)
    leave()


def worker(kit, seat, order, quiet):
    """Lies to the master, to the workers beside it, and to the router."""
    listener, queue_out, queue_in, child_accept, messages, board = kit[:6]
    length = os.fstat(board).st_size
    pages = None
    for first in (0, 4096 * (1 + order["slot"])):
        try:
            pages = mmap.mmap(board, length - first, offset=first)
            break
        except (OSError, ValueError):
            pass
    channel = socket.socket(fileno=os.dup(seat[-1])) if order.get("is_routed") else None
    if channel:
        channel.setblocking(False)
    held, tickets = [], [0, 1, 2**64 - 1]

    def say_up():
        os.set_blocking(child_accept, False)
        for number in [order["slot"]] + random.choices(EDGES[:12] + list(range(9)), k=3):
            try:
                os.write(child_accept, struct.pack("=I", (number | random.choice([0, 1 << 31])) % 2**32))
            except OSError:
                return

    def scribble():
        if pages:
            at = random.randrange(len(pages) // 8) * 8
            words = [random.choice([random.getrandbits(64), 0, 2**64 - 1, 1 << 63, 1]) for _ in range(random.randrange(1, 60))]
            text = struct.pack("=%dQ" % len(words), *words)
            pages[at:at + len(text)] = text[: len(pages) - at]

    def give_junk():
        queue = socket.socket(fileno=os.dup(queue_in))
        junk = [os.open("/dev/null", os.O_RDWR), socket.socketpair()[0].detach(), listener, queue_in, board, 2]
        for _ in range(5):
            fds = array.array("i", random.choices(junk, k=random.choice([1, 2, 60])))
            try:
                queue.sendmsg([noise(40)], [RIGHTS + (fds,)], socket.MSG_DONTWAIT)
            except OSError:
                break
        os.close(junk[0])
        os.close(junk[1])

    def hear():
        """What the router says: connections, with tickets."""
        try:
            data, control, _, _ = channel.recvmsg(200000, socket.CMSG_SPACE(4 * 8))
        except OSError:
            return
        if not data:
            leave()
        for level, kind, content in control:
            if (level, kind) == RIGHTS:
                fds = array.array("i")
                fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
                held.extend(fds)
        if len(data) >= 9:
            tickets.append(struct.unpack("<Q", data[1:9])[0])
        if len(held) > 20:
            os.close(held.pop(0))

    def tell():
        word = random.choice(b"KCRDNX!odM" + b"S?\0\xff")
        ticket = random.choice(tickets[-5:] + [random.getrandbits(64), tickets[-1] + 1])
        rest = some(b"", b"", noise(40), struct.pack("<Q", 2**64 - 1), b"x" * 140000, request(), b"\0" * 8)
        message = some(bytes([word]) + struct.pack("<Q", ticket % 2**64) + rest, noise(30), bytes([word]))
        rights = [RIGHTS + (array.array("i", [2] * random.randrange(1, 100)),)] if random.random() < 0.2 else []
        try:
            channel.sendmsg([message], rights, socket.MSG_DONTWAIT)
        except OSError:
            pass

    if random.random() < 0.9:
        say_up()
    outputs = seat[1:3] if len(seat) > 2 else []
    deeds = [scribble, scribble, lambda: shout(outputs + [messages]), give_junk, say_up, lambda: time.sleep(random.random() / 50)]
    if channel:
        deeds += [hear, tell, tell, tell, hear]
    if random.random() < 0.3 and os.fork() == 0:
        # What it leaves behind goes on for a while.
        os.setsid()
        deeds.append(lambda: None)
        signal.alarm(3)
    end = time.monotonic() + random.uniform(0.1, 1.5)
    while time.monotonic() < end:
        random.choice(deeds)()
    if channel and random.random() < 0.2:
        channel.shutdown(socket.SHUT_RDWR)
        time.sleep(1)
    leave()


def request():
    """A request for somebody else's application, as if the client had sent it."""
    content = b"".join(bytes([len(name), len(text)]) + name + text for name, text in
                       [(b"FORKYARD_APP_ROOT", os.environ.get("GOOD", "/").encode()), (b"REQUEST_METHOD", b"GET")])
    record = lambda kind, content: struct.pack(">BBHHBB", 1, kind, 1, len(content), 0, 0) + content
    return record(1, b"\0\1\1\0\0\0\0\0") + record(4, content) + record(4, b"") + record(5, b"")


def workers(master, kit, directory):
    """Keeps to the preloader's protocol; its workers do not."""
    master.answer(result="ready", version="8.2")
    while True:
        order, seat = master.receive()
        if order["command"] != "spawn":
            continue
        number = random.getrandbits(64)
        pid = sibling()
        if pid == 0:
            random.seed(number)
            master.socket.close()
            os.close(3)
            try:
                worker(kit, seat, order, [])
            finally:
                os._exit(1)
        for fd in seat:
            os.close(fd)
        master.answer(result="ok", worker=order["worker"], pid=pid)


def program(directory):
    """Leaves in its work directory what nobody should read, follow or wait for."""
    work = os.environ["FORKYARD_SPAWN_WORK_DIR"]
    response = work + "/response"
    quiet = os.path.join(os.path.dirname(directory), "quiet.sock")
    names = ["properties.json", "error/category", "error/summary", "error/problem_description.html", "error/advanced_problem_details",
             "steps/subprocess_listen/state", "steps/subprocess_listen/begin_time", "../envdump/envvars", "../envdump/annotations/a",
             "../envdump/user_info", "../args.json"]

    def replace(name):
        path = os.path.join(response, name)
        try:
            os.unlink(path)
        except OSError:
            pass
        os.makedirs(os.path.dirname(path), exist_ok=True)
        some(
            lambda: os.symlink(some("/etc/shadow", "/dev/zero", "/dev/stdin", "/proc/self/mem", work, path), path),
            lambda: os.mkfifo(path), lambda: os.mkdir(path), lambda: open(path, "wb").truncate(1 << 40),
            lambda: open(path, "wb").write(noise(300000)), lambda: socket.socket(socket.AF_UNIX).bind(path),
            lambda: os.link(os.path.join(os.path.dirname(directory), "ok.php"), path))()

    def properties():
        address = some("unix:" + quiet, "unix:/run/dbus/system_bus_socket", "tcp://127.0.0.1:1", "unix:" + work + "/../../x", "tcp://localhost:22", "unix:")
        one = {"address": some(address, value()), "protocol": some("http", "session", "preloader", value()), "concurrency": some(0, 1, value()),
               "accept_http_requests": some(True, True, value())}
        whole = some({"sockets": [one] * some(1, 3, 64, 65, 500)}, {"sockets": value()}, value())
        text = some(json.dumps(whole), json.dumps(whole)[:-3], "[" * 30000, '{"sockets":' * 9000)
        with open(response + "/properties.json", "w") as file:
            file.write(text)

    def litter():
        annotations = work + "/envdump/annotations"
        os.makedirs(annotations, exist_ok=True)
        for number in range(random.choice([3, 500])):
            some(lambda: open("%s/%d" % (annotations, number), "w").write("x" * 2000), lambda: os.mkfifo("%s/%d" % (annotations, number)),
                 lambda: os.symlink("/etc/shadow", "%s/%d\n\x1b" % (annotations, number)))()

    def orphan():
        if os.fork() == 0:
            os.setsid() if random.random() < 0.5 else None
            signal.alarm(5)
            while True:
                shout([1, 2])
                time.sleep(0.1)

    def finish():
        fd = os.open(response + "/finish", os.O_WRONLY | os.O_NONBLOCK)
        os.write(fd, some(b"1", b"0", b"", b"1" * 5000, noise(100)))

    def swap():
        """Directories for others."""
        name = some(response, response + "/error", response + "/steps", work + "/envdump")
        os.rename(name, name + ".old")
        some(lambda: os.symlink(some("/root", "/etc", "/proc/1", directory), name), lambda: None, lambda: os.mkfifo(name), lambda: os.mkdir(name, 0))()

    def close():
        os.chmod(some(work, response), some(0, 0o777))

    deeds = [lambda: replace(random.choice(names)), lambda: replace(random.choice(names)), properties, properties, litter, orphan, finish, swap, close,
             lambda: shout([1, 2]), lambda: replace("finish"), lambda: time.sleep(random.random() / 5)]
    for _ in range(random.randrange(1, 9)):
        try:
            random.choice(deeds)()
        except (OSError, ValueError):
            pass
    if random.random() < 0.3:
        time.sleep(5)
    leave()


def first_line():
    """The master's first line, left where it is."""
    peeking = socket.socket(fileno=os.dup(3))
    peeking.setblocking(True)
    size = 1 << 16
    while True:
        data = peeking.recv(size, socket.MSG_PEEK)
        if not data or b"\n" in data:
            peeking.close()
            return json.loads(data.split(b"\n", 1)[0] or b"{}")
        size *= 2
        time.sleep(0.01)


def main():
    if sys.argv[1:2] == ["program"]:
        directory = os.environ["DIRECTORY"]
        begun(directory, os.environ["NAME"], os.environ["SEED"])
        return program(directory)
    settings = first_line().get("kit", {})
    pool = settings.get("pool", {})
    variables = dict(pool.get("env", []) + pool.get("own_env", []))
    if "LIAR" not in variables:
        real = os.path.join(os.path.dirname(sys.argv[0]), "forkyard-php.real")
        os.execv(real, ["forkyard-php"] + sys.argv[1:])
    os.environ.update(variables)
    master = Master()
    _, kit = master.receive()
    identity = settings["identity"]
    os.setgroups([])
    os.setgid(identity["gid"])
    os.setuid(identity["uid"])
    begun(variables["DIRECTORY"], variables["NAME"], variables["SEED"])
    {"preloader": preloader, "workers": workers}[variables["LIAR"]](master, kit, variables["DIRECTORY"])


main()
